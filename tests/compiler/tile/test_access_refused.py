"""Accesses that are no boxes of arrays, or not provably so, stay as they are."""

import pytest

from deuteron.compiler.ir import Function, parse_function, verify
from deuteron.compiler.launch_recipe import Guard
from deuteron.compiler.tile.blocks import BlockLoad, BlockStore
from deuteron.compiler.tile.passes import structure_accesses

HEAD = """func @f(%p: *f32, %q: *f32, %n: i32, %m: i32, %u: u32, %s: i32) {
  %pid = program_id {axis = 0} : i32
  %i = arange {start = 0, end = 16} : tile<16xi32>
  %row = expand_dims %i {axis = 1} : tile<16x1xi32>
  %column = expand_dims %i {axis = 0} : tile<1x16xi32>
  %one = constant {value = 1, type = tile<16xi32>} : tile<16xi32>
  %zero = constant {value = 0.0, type = tile<16xf32>} : tile<16xf32>
  %ps = splat %p {shape = [16]} : tile<16x*f32>
  %ns = splat %n {shape = [16]} : tile<16xi32>
  %in = compare %i %ns {predicate = "lt"} : tile<16xi1>
  %c16 = constant {value = 16, type = i32} : i32
  %first = mul %pid %c16 : i32
  %firsts = splat %first {shape = [16]} : tile<16xi32>
  %o = add %firsts %i : tile<16xi32>
"""

LOAD = 'load {} {{cache = "", eviction = "", volatile = False}} : tile<16xf32>'
PLAIN = "%x = " + LOAD.format("%at")


def parse(body: str) -> Function:
    return verify(parse_function(HEAD + body + "\n}"))


def boxes(function: Function) -> int:
    return sum(isinstance(op, BlockLoad | BlockStore) for op in function.walk())


def at(offset: str) -> str:
    """A load at ``%offset``."""
    return f"%at = addptr %ps {offset} : tile<16x*f32>\n{PLAIN}"


def masked(mask: str, rest: str = "other=%zero") -> str:
    return f"{mask}\n%at = addptr %ps %o : tile<16x*f32>\n%x = {LOAD.format(f'%at mask=%mask {rest}')}"


def wrapped(divisor: str) -> str:
    """A load at the remainder by n of what begins at ``pid // by * 16``; ``divisor`` says what ``%by`` is."""
    start = "%u2 = mul %n %n : i32\n" + divisor + "\n%by2 = int_div %pid %by : i32\n%start = mul %by2 %c16 : i32\n"
    tile = "%starts = splat %start {shape = [16]} : tile<16xi32>\n%from = add %starts %i : tile<16xi32>\n"
    return start + tile + "%w = rem %from %ns : tile<16xi32>\n" + at("%w")


REFUSED = {
    "an index from memory": "%iq = splat %q {shape = [16]} : tile<16x*f32>\n%qs = addptr %iq %i : tile<16x*f32>\n"
    '%g = load %qs {cache = "", eviction = "", volatile = False} : tile<16xf32>\n'
    '%k = cast %g {to = type(i32), rounding = "rtne"} : tile<16xi32>\n' + at("%k"),
    "an index that counts down": "%down = sub %ns %i : tile<16xi32>\n" + at("%down"),
    "a constant stride below zero": "%c = constant {value = -2, type = tile<16xi32>} : tile<16xi32>\n"
    "%back = mul %i %c : tile<16xi32>\n" + at("%back"),
    "a square": "%square = mul %i %i : tile<16xi32>\n" + at("%square"),
    "a remainder by something that is no multiple": "%c24 = constant {value = 24, type = tile<16xi32>} : tile<16xi32>\n"
    "%w = rem %o %c24 : tile<16xi32>\n" + at("%w"),
    "a remainder that begins in the middle": "%b = add %o %one : tile<16xi32>\n%w = rem %b %ns : tile<16xi32>\n"
    + at("%w"),
    "a remainder that may begin below zero": "%f2 = mul %s %c16 : i32\n%f3 = splat %f2 {shape = [16]} : tile<16xi32>\n"
    "%b = sub %f3 %firsts : tile<16xi32>\n%d = add %b %i : tile<16xi32>\n%w = rem %d %ns : tile<16xi32>\n" + at("%w"),
    "a remainder that begins at a quotient by a difference": wrapped("%by = sub %s %n : i32"),
    "a remainder that begins at a quotient by the lesser of a difference and a number": wrapped(
        "%d = sub %s %pid : i32\n%by = min %d %c16 {propagate_nan = False} : i32"
    ),
    "a remainder that begins at a quotient by what is not all of a group": wrapped(
        "%c8 = constant {value = 8, type = i32} : i32\n%g = int_div %pid %u2 : i32\n%r = mul %g %c8 : i32\n"
        "%d = sub %s %r : i32\n%by = min %d %c16 {propagate_nan = False} : i32"
    ),
    "a quotient": "%c2 = constant {value = 2, type = tile<16xi32>} : tile<16xi32>\n"
    "%half = int_div %o %c2 : tile<16xi32>\n" + at("%half"),
    "an unsigned difference": '%ui = cast %i {to = type(u32), rounding = "rtne"} : tile<16xu32>\n'
    "%us = splat %u {shape = [16]} : tile<16xu32>\n%d = sub %ui %us : tile<16xu32>\n" + at("%d"),
    "narrow integers, which wrap": '%i8 = cast %i {to = type(i8), rounding = "rtne"} : tile<16xi8>\n'
    "%double = add %i8 %i8 : tile<16xi8>\n" + at("%double"),
    "a scalar condition": masked(
        '%c = compare %pid %n {predicate = "lt"} : i1\n%cs = splat %c {shape = [16]} : tile<16xi1>\n'
        "%mask = and %in %cs : tile<16xi1>"
    ),
    "a disjunction": masked('%e = compare %i %ns {predicate = "gt"} : tile<16xi1>\n%mask = or %in %e : tile<16xi1>'),
    "an equality": masked('%mask = compare %i %ns {predicate = "eq"} : tile<16xi1>'),
    "a lower bound alone": masked('%mask = compare %i %ns {predicate = "ge"} : tile<16xi1>'),
    "a bound between two coordinates": "%r = broadcast %row {shape = [16, 16]} : tile<16x16xi32>\n"
    "%c = broadcast %column {shape = [16, 16]} : tile<16x16xi32>\n"
    '%mask = compare %c %r {predicate = "le"} : tile<16x16xi1>\n%pp = splat %p {shape = [16, 16]} : tile<16x16x*f32>\n'
    "%at = addptr %pp %c : tile<16x16x*f32>\n"
    '%x = load %at mask=%mask {cache = "", eviction = "", volatile = False} : tile<16x16xf32>',
    "ones where the mask is false": "%ones = constant {value = 1.0, type = tile<16xf32>} : tile<16xf32>\n"
    + masked("%mask = and %in %in : tile<16xi1>", "other=%ones"),
    "negative zeros where the mask is false": "%minus = constant {value = -0.0, type = tile<16xf32>} : tile<16xf32>\n"
    + masked("%mask = and %in %in : tile<16xi1>", "other=%minus"),
    "a volatile load": "%at = addptr %ps %o : tile<16x*f32>\n"
    '%x = load %at {cache = "", eviction = "", volatile = True} : tile<16xf32>',
    "a store of many elements to one place": 'store %ps %zero {cache = "", eviction = ""}',
    "a step that changes from iteration to iteration": "%at0 = addptr %ps %o : tile<16x*f32>\n"
    "%end = for %pid %n %c16 inits=[%at0] {num_stages = 0, unroll = 1} : tile<16x*f32> "
    "body=(%k: i32, %at: tile<16x*f32>) {\n" + PLAIN + "\n%ks = splat %k {shape = [16]} : tile<16xi32>\n"
    "%next = addptr %at %ks : tile<16x*f32>\nyield values=[%next]\n}",
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_stays_a_gather(body):
    function = parse(body)
    assert structure_accesses(function, lambda op: op.location is None) == ()
    left = boxes(verify(function))
    assert left == ("%qs" in body)  # the load of indices is a box itself


def test_the_others_are_boxes():
    """What stands around the refused parts is not the reason."""
    for body in (
        at("%o"),
        masked("%mask = and %in %in : tile<16xi1>"),
        masked("%mask = and %in %in : tile<16xi1>", ""),
    ):
        function = parse(body)
        assert structure_accesses(function, lambda op: True) == ()
        assert boxes(verify(function)) == 1
    function = parse("%w = rem %o %ns : tile<16xi32>\n" + at("%w"))
    assert structure_accesses(function, lambda op: True) == (Guard("n", "multiple", 16),)
    assert boxes(function) == 1


def test_signs_of_arguments_are_guards():
    """An index that begins at ``s * 16`` is not negative if s is not."""
    body = "%f2 = mul %s %c16 : i32\n%f3 = splat %f2 {shape = [16]} : tile<16xi32>\n%d = add %f3 %i : tile<16xi32>\n"
    body += "%w = rem %d %ns : tile<16xi32>\n" + at("%w")
    guards = Guard("n", "multiple", 16), Guard("s", "least", 0)
    assert structure_accesses(parse(body), lambda op: True) == guards
    denied = parse(body)
    assert structure_accesses(denied, lambda op: True, frozenset(guards[1:])) == ()
    assert boxes(denied) == 0
    assumed = (
        '%null = constant {value = 0, type = i32} : i32\n%c = compare %s %null {predicate = "ge"} : i1\nassume %c\n'
    )
    assert structure_accesses(parse(assumed + body), lambda op: True) == guards[:1]


#: Divisors, and what has to be promised of the arguments so that they are not negative.
DIVISORS = {
    "programs": ("%by = num_programs {axis = 0} : i32", ()),
    "a size in blocks": (
        "%c15 = constant {value = 15, type = i32} : i32\n%more = add %s %c15 : i32\n%by = int_div %more %c16 : i32",
        ("s",),
    ),
    "the larger one": (
        "%c1 = constant {value = 1, type = i32} : i32\n%d = sub %s %n : i32\n"
        "%by = max %d %c1 {propagate_nan = False} : i32",
        (),
    ),
    "a product": ("%by = mul %m %s : i32", ("m", "s")),
    "rows of a group": (
        "%g = int_div %pid %u2 : i32\n%r = mul %g %c16 : i32\n%d = sub %s %r : i32\n"
        "%by = min %d %c16 {propagate_nan = False} : i32",
        (),
    ),
}


@pytest.mark.parametrize("divisor", DIVISORS)
def test_quotients_are_not_negative_where_both_sides_are_not(divisor):
    text, promised = DIVISORS[divisor]
    function = parse(wrapped(text))
    guards = {Guard("n", "multiple", 16), *(Guard(name, "least", 0) for name in promised)}
    assert set(structure_accesses(function, lambda op: True)) == guards
    assert boxes(verify(function)) == 1
