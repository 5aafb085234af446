"""The audit of dependencies: it fails for what is known, and says what it could not know."""

import subprocess

import audit

SOUND = {"name": "numpy", "version": "2.0", "vulns": []}
UNKNOWN = {"name": "rich", "skip_reason": "not found"}
WRONG = {
    "name": "jinja2", "version": "2.0", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1", "3.0"]}],
}  # fmt: skip


def audited(monkeypatch, capsys, dependencies):
    monkeypatch.setattr(audit, "asked", lambda: dependencies)
    return audit.main(), capsys.readouterr().out


def test_what_is_known_fails_and_what_is_not_known_is_said(monkeypatch, capsys):
    assert audited(monkeypatch, capsys, [SOUND]) == (0, "")
    code, text = audited(monkeypatch, capsys, [SOUND, WRONG])
    assert (code, text) == (1, "jinja2 2.0: CVE-1, mended in 2.1, 3.0\n")
    code, text = audited(monkeypatch, capsys, [SOUND, UNKNOWN])
    assert code == 0
    assert "of 2 dependencies, NOT audited: rich" in text
    for nothing in ([], [UNKNOWN]):
        code, text = audited(monkeypatch, capsys, nothing)
        assert code == 0
        assert "were NOT audited" in text


def test_no_answer_is_no_dependencies(monkeypatch):
    def slow(*_, **options):
        raise subprocess.TimeoutExpired("pip_audit", options["timeout"])

    monkeypatch.setattr(subprocess, "run", slow)
    assert audit.asked() == []
    failed = subprocess.CompletedProcess([], 1, "", "no such host")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    assert audit.asked() == []
