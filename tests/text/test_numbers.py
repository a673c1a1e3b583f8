"""A long number of a sentence is in its translation with all digits."""

import time

import pytest

from keras_transformer.text.numbers import with_long_numbers


@pytest.mark.parametrize(
    ("source", "wrong", "right"),
    [
        ("Tue, 16 Aug 2022", "Di, 16. Aug. 202", "Di, 16. Aug. 2022"),
        ("ports 7777 and 9999", "Ports 999 und 777", "Ports 9999 und 7777"),
        ("9.0.0503  build failure", "9.0503-Baufehler", "9.0.0503-Baufehler"),
        ("cost 12346 euros", "Kosten 12.345 Euro", "Kosten 12346 Euro"),
        ("commit e5ddd6b302004", "Commit e5ddd6b30204", "Commit e5ddd6b302004"),
    ],
)
def test_a_wrong_copy_is_replaced(source, wrong, right):
    assert with_long_numbers(wrong, source) == right


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("1,234,567 of 2000 files", "1.234.567 von 2 000 Dateien"),
        ("at 11:30 pm, 01/31/2005", "um 23:30 Uhr am 31.01.2005"),
        ("1500 km, 5280 feet", "tausendfünfhundert km, 1609 m"),
        ("in 1990", "1990 (vor 35 Jahren)"),
        ("Mon, 06 Aug 2012 13:12:22", "Mo, 06 Aug 2012:12:2"),
        ("in 2022", "২০২২ সালে"),
        ("two dogs", "2 Hunde, 2022"),
        ("2021 and 2022", "202 und 202"),  # which is which?
        ("2500 BC", "25. Jahrhundert"),
        ("2.3.1999", "1999-03-02"),
    ],
)
def test_other_numbers_stay(source, translation):
    assert with_long_numbers(translation, source) == translation


@pytest.mark.parametrize("text", ["1" * 20_000 + "x", "a" * 20_000, "1.1" * 5000 + "x"])
def test_a_long_hostile_line_takes_no_time(text):
    start = time.process_time()
    with_long_numbers(f"{text} 1234", f"{text} 12345")
    with_long_numbers(" ".join(map(str, range(1000, 9000))), " ".join(map(str, range(9000, 9999))))
    assert time.process_time() - start < 1
