from lowtide.cli.means import describe_bound, describe_change, means_row


def test_what_is_larger_saves_nothing() -> None:
    assert means_row("order", 750, 1000) == ("750", "750 B", "25.0 %", "order")
    assert means_row("order", 1000, 1000)[2] == "0.0 %"
    assert means_row("order", 1306, 1000)[2] == "nothing"
    assert means_row("order", 0, 0)[2] == "0.0 %"


def test_a_change_is_less_or_more() -> None:
    assert describe_change(4096, 1024) == "4096 -> 1024 bytes (1.00 KiB), 75.0 % less"
    assert describe_change(1000, 1306) == "1000 -> 1306 bytes (1.28 KiB), 30.6 % more"
    assert describe_change(0, 0) == "0 -> 0 bytes (0 B), 0.0 % less"


def test_the_inputs_are_many() -> None:
    assert describe_bound("conv").startswith("Op-bound: conv alone needs ")
    assert describe_bound(None).startswith("Input-bound: the inputs alone need ")
