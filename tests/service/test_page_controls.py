"""The controls of the page, in a real browser: what is confirmed happens, with the key typed in."""

import pytest
from harness import Client, configured

from tacit.service.app.server import run_in_thread
from tacit.service.config.keys import new_key
from tests.service.test_page import obstacles

ADMIN, READ = new_key(), new_key()
ARMS = ["film", "<b>recipe</b>", "tomato, soup"]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    placement = {"arms": ARMS, "seed": 7, "policy": "thompson"}
    keys = {"ops": {"sha256": ADMIN[1], "scopes": ["admin"]}, "eyes": {"sha256": READ[1], "scopes": ["read"]}}
    placements = dict.fromkeys(("home", "kept", "closed", "turned", "second", "rebuilt"), placement)
    placements["numbered"] = {"arms": 2, "policy": "thompson"}
    config = configured(tmp_path_factory.mktemp("controls") / "s.db", keys=keys, placements=placements)
    with run_in_thread(config) as address:
        yield address


@pytest.fixture
def controls(opened):
    """Give a function that opens a placement's page with a key for reading, and types in that for changes."""

    def open_controls(name, admin=ADMIN[0], **options):
        eyes = {"username": "eyes", "password": READ[0]}
        page = opened(f"/placements/{name}", http_credentials=eyes, **options)
        page.fill("#admin", admin)
        return page

    return open_controls


def asked(address, path):
    headers = {"authorization": f"Bearer {READ[0]}"}
    return Client(address).ask("GET", f"/v1/placements{path}", headers=headers)[2]


def summary(address, name):
    return next(p for p in asked(address, "")["placements"] if p["name"] == name)


def submit(page, act, *, yes=True, wait_for=None):
    """Ask for something and answer the question; return what that says, when it is done or refused."""
    page.click(f'#settings form[data-act="{act}"] button')
    page.wait_for_selector("#confirm[open]")
    says = page.locator("#confirm").inner_text()
    page.click(f'#confirm button[value="{"yes" if yes else "no"}"]')
    page.wait_for_selector(wait_for or f"text=Done: {act[0].lower()}{act[1:]}.")
    return says


def test_a_mode_is_changed_after_a_question(controls, address):
    page = controls("turned")
    page.select_option('#settings select[name="mode"]', "frozen")
    says = submit(page, "Change the mode", yes=False, wait_for="text=Nothing was changed.")
    assert "Change the mode at turned?" in says
    assert "learns nothing" in says
    assert "the lift goes on" in says
    assert summary(address, "turned")["mode"] == "online"
    submit(page, "Change the mode")
    assert summary(address, "turned")["mode"] == "frozen"
    # What was changed, by whom, is there at once.
    page.wait_for_selector('[data-field="mode"] >> text=frozen')
    (change,) = asked(address, "/turned/history")["history"]
    assert (change["what"], change["by"]) == ("mode", "ops")


def test_arms_come_go_and_come_back(controls, address):
    page = controls("home")
    page.fill('#settings input[name="add"]', "museum, <i>odd</i>")
    assert "museum, <i>odd</i>" in submit(page, "Add arms")
    page.wait_for_selector('#settings option >> text="museum"', state="attached")
    assert summary(address, "home")["arms"] == [*ARMS, "museum", "<i>odd</i>"]
    page.select_option('#settings select[name="retire"]', label="tomato, soup")
    assert "tomato, soup is shown no more" in submit(page, "Retire an arm")
    page.wait_for_selector('#settings form[data-act="Restore an arm"]')
    assert summary(address, "home")["retired"] == ["tomato, soup"]
    submit(page, "Restore an arm")
    assert summary(address, "home")["retired"] == []


def test_an_arm_is_pinned_and_let_go(controls, address):
    page = controls("second")
    page.select_option('#settings select[name="arms"]', label="<b>recipe</b>")
    assert "<b>recipe</b>: shown by every decision" in submit(page, "Pin")
    page.wait_for_selector('#settings form[data-act="Unpin"]')
    assert summary(address, "second")["pinned"] == ["<b>recipe</b>"]
    page.wait_for_selector('[data-field="mode"] >> text="learning, pinned: <b>recipe</b>"')
    submit(page, "Unpin")
    page.wait_for_selector('#settings form[data-act="Unpin"]', state="detached")
    assert summary(address, "second")["pinned"] is None
    # Newest first: what was changed, and with whose key.
    page.wait_for_selector('[data-table="history"] tbody tr:nth-child(1) >> text=unpin')
    page.wait_for_selector('[data-table="history"] tbody tr:nth-child(2) >> text=pinned until')
    page.wait_for_selector('[data-table="history"] tbody tr:nth-child(2) >> text=key ops')


def test_a_holdout_is_set_and_ended(controls, address):
    page = controls("second")
    page.fill('#settings input[name="share"]', "20")
    page.select_option('#settings select[name="control"]', label="arm <b>recipe</b>")
    page.select_option('#settings select[name="unit"]', "user")
    assert "20 % of decisions, by user, are the control’s (arm <b>recipe</b>)" in submit(
        page, "Set the holdout"
    )
    page.wait_for_selector("text=20 % of decisions, by user, are the control’s: arm <b>recipe</b>.")
    (last, *_) = asked(address, "/second/history")["history"]
    held = {"share": 0.2, "control": {"arm": "<b>recipe</b>"}, "unit": "user"}
    assert (last["by"], last["detail"]) == ("ops", {"holdout": held})
    page.wait_for_selector('[data-table="history"] tbody tr:nth-child(1) >> text=holdout')
    submit(page, "End the holdout")
    page.wait_for_selector("text=None: nobody is shown a control.")


def test_the_log_is_folded_into_another_policy_and_back(controls, address):
    page = controls("rebuilt")
    page.fill('#settings input[name="policy"]', "ucb1")
    assert "The log is folded into ucb1 while Thompson goes on deciding" in submit(page, "Rebuild")
    assert summary(address, "rebuilt")["policy"]["name"] == "UCB1"
    page.wait_for_selector('#settings form[data-act="Roll back"]')
    assert "decides again" in submit(page, "Roll back")
    assert summary(address, "rebuilt")["policy"]["name"] == "Thompson"
    page.wait_for_selector('[data-table="history"] tbody tr:nth-child(1) >> text=rollback')
    page.wait_for_selector('[data-table="history"] tbody tr:nth-child(2) >> text=rebuild: UCB1')


def test_numbered_arms_are_added_by_their_number(controls, address):
    page = controls("numbered")
    page.fill('#settings input[name="add"]', "2")
    submit(page, "Add arms")
    assert summary(address, "numbered")["arms"] == [0, 1, 2, 3]


def test_without_the_right_key_the_api_says_why(controls, address, opened):
    opened.refused[:] = [401, 403]
    page = controls("closed", admin="")
    page.select_option('#settings select[name="mode"]', "frozen")
    # The key of the one who looks may only read.
    submit(page, "Change the mode", wait_for="#done.bad >> text=this needs the scope 'admin'")
    page.fill("#admin", "tacit_wrong")
    submit(page, "Change the mode", wait_for="#done.bad >> text=this key is not known")
    assert summary(address, "closed")["mode"] == "online"


def test_an_error_of_the_api_is_a_sentence(controls, opened):
    opened.refused[:] = [422]
    page = controls("second")
    page.fill('#settings input[name="add"]', "film")
    submit(page, "Add arms", wait_for="#done.bad")
    assert "film" in page.locator("#done").inner_text()


def test_the_key_is_kept_nowhere(controls):
    page = controls("kept")
    page.select_option('#settings select[name="mode"]', "online")
    submit(page, "Change the mode")
    kept = page.evaluate(
        "JSON.stringify([localStorage, sessionStorage, document.cookie, location.href, "
        "document.documentElement.outerHTML])"
    )
    assert ADMIN[0] not in kept
    page.reload()
    assert page.input_value("#admin") == ""


def test_the_question_is_answered_by_keyboard(controls, address):
    page = controls("kept")
    page.select_option('#settings select[name="mode"]', "frozen")
    page.locator('#settings form[data-act="Change the mode"] button').focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#confirm[open]")
    assert obstacles(page) == []
    page.keyboard.press("Escape")
    page.wait_for_selector("text=Nothing was changed.")
    assert summary(address, "kept")["mode"] != "frozen"


@pytest.mark.parametrize("width", [400, 1600])
def test_controls_fit_and_no_obstacle_is_found(controls, width):
    page = controls("home", viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert obstacles(page) == []
