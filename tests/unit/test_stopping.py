"""Ctrl-C and SIGTERM: the first asks, the second acts at once, and handlers are put back."""

import os
import signal
import threading

import pytest

from chainlake.lake import stopping
from chainlake.lake.stopping import Stopped


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noticed_between_steps_and_a_second_one_acts_at_once(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stopping.listening():
        stopping.check()
        os.kill(os.getpid(), number)
        with pytest.raises(Stopped, match="run again to go on") as stopped:
            stopping.check()
        assert stopped.value.exit_code == 130
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
    with stopping.listening():
        stopping.check()  # what was asked of an earlier run does not stop this one


def test_another_thread_than_the_main_one_listens_to_nothing() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work() -> None:
        with stopping.listening():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
