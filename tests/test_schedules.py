"""The learning rate: the paper's formula at the update that it is applied to."""

import keras
import pytest

from keras_transformer import InverseSquareRootSchedule


@pytest.mark.parametrize("update", [1, 2, 3999, 4000, 4001, 100_000])
def test_rate_of_an_update_is_equation_3(update):
    schedule = InverseSquareRootSchedule(512, warmup_steps=4000)
    expected = 512**-0.5 * min(update**-0.5, update * 4000**-1.5)
    # Keras passes the number of earlier updates.
    assert float(schedule(update - 1)) == pytest.approx(expected, rel=1e-6)


def test_known_rates_of_the_base_model():
    schedule = InverseSquareRootSchedule(512, warmup_steps=4000)
    rates = [float(schedule(update - 1)) for update in (1, 4000, 100_000)]
    assert rates == pytest.approx([1.746928e-7, 6.987712e-4, 1.397542e-4], rel=1e-5)


def test_the_peak_is_at_the_end_of_the_warm_up():
    schedule = InverseSquareRootSchedule(64, warmup_steps=20)
    rates = [float(schedule(step)) for step in range(60)]
    assert max(range(60), key=rates.__getitem__) == 19
    assert rates[:20] == sorted(rates[:20])
    assert rates[19:] == sorted(rates[19:], reverse=True)


def test_the_peak_can_be_given():
    schedule = InverseSquareRootSchedule.with_peak(0.003, d_model=64, warmup_steps=20)
    assert float(schedule(19)) == pytest.approx(0.003)
    assert float(schedule(79)) == pytest.approx(0.0015)


def test_factor_multiplies_the_rate():
    plain, doubled = (InverseSquareRootSchedule(64, 20, factor) for factor in (1.0, 2.0))
    assert float(doubled(7)) == pytest.approx(2 * float(plain(7)))


def test_the_rate_falls_to_zero_over_the_last_updates():
    plain = InverseSquareRootSchedule(64, warmup_steps=20)
    schedule = InverseSquareRootSchedule(64, warmup_steps=20, steps=60, cooldown_steps=9)
    shares = [float(schedule(step)) / float(plain(step)) for step in range(65)]
    assert shares[:51] == [1] * 51
    assert shares[51:60] == pytest.approx([n / 10 for n in range(9, 0, -1)], rel=1e-5)
    assert shares[60:] == [0] * 5


def test_the_optimizer_applies_the_rate_of_each_update_to_that_update():
    schedule = InverseSquareRootSchedule(64, warmup_steps=2)
    optimizer = keras.optimizers.SGD(schedule)
    weight = keras.Variable(0.0)
    for update in (1, 2, 3):
        before = float(weight.value)
        optimizer.apply([keras.ops.ones(())], [weight])
        expected = 64**-0.5 * min(update**-0.5, update * 2**-1.5)
        assert before - float(weight.value) == pytest.approx(expected, rel=1e-5)


def test_n_times_the_warm_up_gives_updates_of_n_accumulated_gradients_the_same_rates():
    expected = InverseSquareRootSchedule.with_peak(0.1, d_model=64, warmup_steps=3)
    schedule = InverseSquareRootSchedule.with_peak(0.1, d_model=64, warmup_steps=2 * 3)
    optimizer = keras.optimizers.SGD(schedule, gradient_accumulation_steps=2)
    weight = keras.Variable(0.0)
    for step in range(6):
        before = float(weight.value)
        for _ in range(2):
            optimizer.apply([keras.ops.ones(())], [weight])
        assert before - float(weight.value) == pytest.approx(float(expected(step)), rel=1e-5)


def test_configuration_gives_back_the_same_schedule_within_its_optimizer():
    schedule = InverseSquareRootSchedule(64, 20, factor=0.5, steps=40, cooldown_steps=15)
    optimizer = keras.optimizers.Adam(schedule, beta_2=0.98)
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert float(copy._learning_rate(30)) == float(schedule(30))
    assert copy._learning_rate.get_config() == schedule.get_config()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 4000, 1.0), "d_model must be positive and finite: found 0"),
        ((512, 0, 1.0), "warmup_steps must be positive and finite: found 0"),
        ((512, 4000, 0.0), "factor must be positive and finite: found 0.0"),
        ((512, 4000, -1.0), "factor must be positive and finite: found -1.0"),
        ((512, 4000, float("nan")), "factor must be positive and finite: found nan"),
        ((512, float("inf")), "warmup_steps must be positive and finite: found inf"),
        ((512, 4000, 1.0, None, 1), "cooldown_steps must be .* at most steps=None: found 1"),
        ((512, 4000, 1.0, 10, 11), "cooldown_steps must be .* at most steps=10: found 11"),
        ((512, 4000, 1.0, 10, -1), "cooldown_steps must be at least 0 .*: found -1"),
    ],
)
def test_what_is_not_positive_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        InverseSquareRootSchedule(*arguments)
