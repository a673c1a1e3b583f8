"""How long a run will take: said after a few steps, with what fits into a night."""

import dataclasses
import datetime

from keras_transformer import TransformerConfig
from keras_transformer.data import BuiltinPairs
from keras_transformer.training import TrainingJob, TrainingOptions
from keras_transformer.training.forecast import StepTimer, forecast
from keras_transformer.training.run_state import RunState

NOW = datetime.datetime(2026, 11, 27, 17, 30)
PAIRS = BuiltinPairs("train", 10)


def job(preset, **fields):
    config = TransformerConfig.from_preset(preset, vocab_size=340)
    options = TrainingOptions.from_preset(preset)
    return TrainingJob(
        **{
            **dict(model_dir="runs/new", train=PAIRS, config=config, options=options),
            **dict(preset=preset),
            **fields,
        }
    )


def lines(preset, seconds_a_step, state=None, workers=1, **fields):
    state = state or RunState()
    return forecast(job(preset, **fields), state, seconds_a_step, NOW, workers).splitlines()


def test_steps_that_compile_are_not_timed():
    timer = StepTimer()
    steps = [(20, 40.0), (16, 5.0), (18, 5.0), (16, 1.0), (22, 5.0), (20, 3.0)]
    assert [timer.add(*step) for step in steps] == [None] * 5 + [2.0]


def test_after_three_minutes_the_steps_that_there_are_count():
    timer = StepTimer()
    steps = [(20, 90.0), (16, 85.0), (18, 105.0)]
    assert [timer.add(*step) for step in steps] == [None, None, 95]
    timer = StepTimer()
    steps = [(20, 90.0), (16, 80.0), (20, 70.0), (18, 75.0)]
    assert [timer.add(*step) for step in steps] == [None, None, None, 70]


def test_a_run_of_hours_says_its_end():
    state = RunState(step=8)
    assert lines("tiny", 0.887, state) == [
        "About 2 h 10 min for the remaining 8,792 steps (0.89 s a step), until about 19:39"
    ]


def test_the_end_of_another_day_has_its_date():
    [line] = lines("tiny", 5.2)
    assert line == (
        "About 12 h 43 min for the remaining 8,800 steps (5.2 s a step), until about "
        "2026-11-28 06:12"
    )


def test_validations_that_nobody_has_timed_yet_come_on_top():
    [line] = lines("tiny", 0.5, valid=PAIRS)
    assert line.endswith("until about 18:43; validations come on top")


def test_a_resumed_run_counts_validations_and_checkpoints_as_they_were():
    state = RunState(step=4400, validation_seconds=2000.0, saving_seconds=200.0)
    [line] = lines("tiny", 0.5, state, valid=PAIRS)
    assert line == (
        "About 1 h 13 min for the remaining 4,400 steps (0.5 s a step), until about 18:43"
    )


def test_a_run_of_more_than_a_day_names_what_fits_into_a_night():
    _, advice = lines("small", 3.0)
    assert advice == (
        "That is more than a day; a night of 8 hours is enough for --preset=compact "
        "--model_dir=NEW or this run with --steps=9600"
    )


def test_too_few_steps_to_warm_up_are_not_recommended():
    options = TrainingOptions.from_preset("small")
    seconds = 8 * 3600 / options.warmup_steps
    _, advice = lines("small", seconds)
    assert advice.endswith("enough for --preset=compact --model_dir=NEW")
    _, advice = lines("small", seconds, start_from="runs/own")  # a new model would not start there
    assert advice.endswith(f"enough for this run with --steps={options.warmup_steps}")


def test_the_smallest_preset_has_only_fewer_steps():
    _, advice = lines("tiny", 10.0)
    assert advice.endswith("enough for this run with --steps=2880")


def test_steps_that_train_would_refuse_are_not_recommended():
    options = TrainingOptions.from_preset("tiny")
    assert len(lines("tiny", 8 * 3600 / options.bidirectional_steps)) == 1
    _, advice = lines("tiny", 8 * 3600 / options.bidirectional_steps - 0.01)
    assert advice.endswith(f"this run with --steps={options.bidirectional_steps + 2}")
    cooled = dataclasses.replace(options, cooldown_steps=2881)
    assert len(lines("tiny", 10.0, options=cooled)) == 1  # 2,880 fit into a night
    cooled = dataclasses.replace(options, cooldown_steps=2880)
    assert lines("tiny", 10.0, options=cooled)[1].endswith("this run with --steps=2880")


def test_several_workers_are_not_advised_a_preset_that_is_for_one_machine():
    _, advice = lines("small", 3.0, workers=2)
    assert advice.endswith("enough for this run with --steps=9600")


def test_the_steps_of_a_night_come_after_those_that_are_done():
    state = RunState(step=20_000)
    _, advice = lines("base", 2.0, state)
    assert advice.endswith("this run with --steps=34400")


def test_a_long_run_of_a_parser_is_advised_a_parser(tmp_path):
    class Trees(BuiltinPairs):
        task = "parsing"

    options = dataclasses.replace(TrainingOptions.from_preset("parsing"), steps=50_000)
    _, advice = lines("parsing", 9.0, train=Trees("train", 10), options=options, vocab_type=None)
    assert advice.endswith("enough for --preset=parsing-small --model_dir=NEW")
