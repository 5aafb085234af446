"""On how many drawn examples a property is tried: on few in each run, the same ones each time, and on many
others by ``make test-long``."""

from hypothesis import HealthCheck, settings

LEAST = 3

# How long an example takes says how busy the machine is. What tests share, like a folder, is made for
# one of them, and its examples use it one after the other.
ANYWHERE = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.register_profile("short", ANYWHERE, max_examples=30, derandomize=True)
settings.register_profile("long", ANYWHERE, max_examples=300)
settings.load_profile("short")


def examples(number):
    """Return settings for a property that is to be tried on a number of examples, where others are on 100."""
    return settings(max_examples=max(LEAST, number * settings.default.max_examples // 100))


def is_long():
    """Whether this is the long form, in which what takes long to compile is compiled as well."""
    return settings.default.max_examples >= 100
