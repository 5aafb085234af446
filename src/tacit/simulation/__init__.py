"""Policy × environment → regret curves."""

from tacit.simulation.rounds import DELAY_STREAM, ENVIRONMENT_STREAM, POLICY_STREAM, Run, run_stream
from tacit.simulation.runs import Comparison, SimulationResult, play_runs, simulate, standard_error

__all__ = [
    "DELAY_STREAM",
    "ENVIRONMENT_STREAM",
    "POLICY_STREAM",
    "Comparison",
    "Run",
    "SimulationResult",
    "play_runs",
    "run_stream",
    "simulate",
    "standard_error",
]
