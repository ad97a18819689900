"""`python -m bench calls` on the null driver."""

from bench import calls


def test_every_call_is_measured_and_wakes_no_thread(monkeypatch):
    monkeypatch.setattr(calls, "ROW", 20)
    monkeypatch.setattr(calls, "_rate", lambda context, name, number: 1.0)
    monkeypatch.setenv("WEBNN_VK_NULL_DEVICES", "1")
    found = calls.measure("null", "vulkan", 2)
    assert all(0 < found["µs"][name] for name in calls.CALLS)
    assert found["thread switches"].keys() == {*calls.CALLS}
    assert found["rates"].keys() == {*calls.CALLS[2:]}


def test_rates_count_every_thread(context):
    assert calls._rate(context, calls.CALLS[3], 2, seconds=0.1) > 0
