"""Every folding rule, by name: what it is given and what is left of it. A rule without a case fails the last test."""

import pytest
from operation_texts import HEAD, f32, i32

from deuteron.compiler.ir import parse_function, print_function, verify
from deuteron.compiler.tile.passes import dce, fold
from deuteron.compiler.tile.passes.registry import RULES

#: A tile of halves in f32, and its transpose.
WIDENED = (
    '%w = cast %a {to = type(f32), rounding = "rtne"} : tile<16x16xf32>',
    "%v = permute %w {order = [1, 0]} : tile<16x16xf32>",
)
TURNED = "%0 = permute %a {order = [1, 0]} : tile<16x16xf16>"

# Rule -> (operations that make %r, what remains before and in "print values=[...]").
CASES: dict[str, list[tuple[list[str], list[str]]]] = {
    "constant_right": [
        ([i32("k", 3), "%r = add %k %x : i32"], [i32("k", 3), "%r = add %x %k : i32", "%r"])
    ],
    "zero_right": [
        ([i32("z", 0), "%r = sub %x %z : i32"], ["%x"]),
        ([i32("z", 0), "%r = shl %x %z : i32"], ["%x"]),
    ],
    "one_right": [([i32("k", 1), "%r = int_div %x %k : i32"], ["%x"])],
    "zero_absorbs": [([i32("z", 0), "%r = mul %x %z : i32"], [i32("z", 0), "%z"])],
    "rem_by_one": [([i32("k", 1), "%r = rem %x %k : i32"], [i32("r", 0), "%r"])],
    "ones_right": [([i32("k", -1), "%r = and %x %k : i32"], ["%x"])],
    "ones_absorb": [([i32("k", -1), "%r = or %x %k : i32"], [i32("k", -1), "%k"])],
    "same_operands": [(["%r = and %x %x : i32"], ["%x"])],
    "same_extremes": [
        (["%r = min %x %x {propagate_nan = False} : i32"], ["%x"]),
        (["%r = min %f %f {propagate_nan = False} : f32"],
         ["%r = min %f %f {propagate_nan = False} : f32", "%r"]),
    ],
    "cancel": [
        (["%r = sub %x %x : i32"], [i32("r", 0), "%r"]),
        (["%r = sub %f %f : f32"], ["%r = sub %f %f : f32", "%r"]),
    ],
    "reassociate": [
        ([i32("k", 3), i32("j", 4), "%s = add %x %k : i32", "%r = add %s %j : i32"],
         [i32("0", 7), "%r = add %x %0 : i32", "%r"]),
    ],
    "add_up_constants": [
        ([i32("k", 3), i32("j", 3), "%s = add %x %k : i32", "%r = sub %s %j : i32"], ["%x"]),
        ([i32("k", 3), i32("j", 4), "%s = add %x %k : i32", "%r = sub %s %j : i32"],
         [i32("0", 1), "%r = sub %x %0 : i32", "%r"]),
        ([i32("k", 3), i32("j", 4), "%s = sub %x %k : i32", "%r = add %s %j : i32"],
         [i32("0", 1), "%r = add %x %0 : i32", "%r"]),
        ([i32("k", 3), i32("j", 4), "%s = sub %x %k : i32", "%r = sub %s %j : i32"],
         [i32("0", 7), "%r = sub %x %0 : i32", "%r"]),
        # 200 is no int8
        (["%k = constant {value = 100, type = i8} : i8", "%s = sub %g %k : i8", "%r = sub %s %k : i8"],
         ["%k = constant {value = 100, type = i8} : i8", "%s = sub %g %k : i8", "%r = sub %s %k : i8", "%r"]),
        ([f32("k", "3.0"), "%s = add %f %k : f32", "%r = sub %s %k : f32"],
         [f32("k", "3.0"), "%s = add %f %k : f32", "%r = sub %s %k : f32", "%r"]),
    ],
    "mul_one": [([f32("k", "1.0"), "%r = mul %k %f : f32"], ["%f"])],
    "div_one": [([f32("k", "1.0"), "%r = div %f %k {precise = False} : f32"], ["%f"])],
    "small_power": [
        ([f32("k", "1.0"), "%r = pow %f %k : f32"], ["%f"]),
        ([f32("k", "2.0"), "%r = pow %f %k : f32"], ["%r = mul %f %f : f32", "%r"]),
        ([f32("k", "3.0"), "%r = pow %f %k : f32"], ["%0 = mul %f %f : f32", "%r = mul %0 %f : f32", "%r"]),
        ([f32("k", "4.0"), "%r = pow %f %k : f32"], ["%0 = mul %f %f : f32", "%r = mul %0 %0 : f32", "%r"]),
        ([f32("k", "2.5"), "%r = pow %f %k : f32"], [f32("k", "2.5"), "%r = pow %f %k : f32", "%r"]),
        (["%k = constant {value = 3.0, type = f16} : f16", "%r = pow %h %k : f16"],
         ["%k = constant {value = 3.0, type = f16} : f16", "%r = pow %h %k : f16", "%r"]),
    ],
    "sub_zero": [([f32("k", "0.0"), "%r = sub %f %k : f32"], ["%f"])],
    "add_negative_zero": [
        ([f32("k", "-0.0"), "%r = add %f %k : f32"], ["%f"]),
        ([f32("k", "0.0"), "%r = add %f %k : f32"], [f32("k", "0.0"), "%r = add %f %k : f32", "%r"]),
    ],
    "dot_of_widened": [
        ([*WIDENED, '%r = dot %w %v %d {precision = "tf32"} : tile<16x16xf32>'],
         [TURNED, '%r = dot %a %0 %d {precision = "tf32"} : tile<16x16xf32>', "%r"]),
        ([*WIDENED, '%r = dot %v %w %d {precision = "tf32x3"} : tile<16x16xf32>'],
         [TURNED, '%r = dot %0 %a %d {precision = "tf32x3"} : tile<16x16xf32>', "%r"]),
        ([*WIDENED, '%r = dot %w %v %d {precision = "ieee"} : tile<16x16xf32>'],
         [*WIDENED, '%r = dot %w %v %d {precision = "ieee"} : tile<16x16xf32>', "%r"]),
        ([*WIDENED, '%r = dot %w %d %d {precision = "tf32"} : tile<16x16xf32>'],
         [WIDENED[0], '%r = dot %w %d %d {precision = "tf32"} : tile<16x16xf32>', "%r"]),
    ],
    "dot_accumulates": [
        (["%z = constant {value = 0.0, type = tile<16x16xf32>} : tile<16x16xf32>",
          '%s = dot %a %a %z {precision = "tf32"} : tile<16x16xf32>',
          "%r = add %d %s : tile<16x16xf32>"],
         ['%r = dot %a %a %d {precision = "tf32"} : tile<16x16xf32>', "%r"]),
    ],
    "involution": [(["%s = neg %f : f32", "%r = neg %s : f32"], ["%f"])],
    "not_compare": [
        (['%s = compare %x %y {predicate = "lt"} : i1', "%r = not %s : i1"],
         ['%r = compare %x %y {predicate = "ge"} : i1', "%r"]),
        (['%s = compare %f %f {predicate = "lt"} : i1', "%r = not %s : i1"],
         ['%s = compare %f %f {predicate = "lt"} : i1', "%r = not %s : i1", "%r"]),
    ],
    "compare_same": [
        (['%r = compare %x %x {predicate = "le"} : i1'],
         ["%r = constant {value = True, type = i1} : i1", "%r"]),
    ],
    "select_constant": [
        (["%k = constant {value = False, type = i1} : i1", "%r = select %k %x %y : i32"], ["%y"]),
    ],
    "select_same": [(["%r = select %c %x %x : i32"], ["%x"])],
    "select_boolean": [
        (["%k = constant {value = True, type = i1} : i1", "%j = constant {value = False, type = i1} : i1",
          "%r = select %c %k %j : i1"], ["%c"]),
    ],
    "select_not": [
        (["%n = not %c : i1", "%r = select %n %x %y : i32"], ["%r = select %c %y %x : i32", "%r"]),
    ],
    "cast_nothing": [(['%r = cast %x {to = type(i32), rounding = "rtne"} : i32'], ["%x"])],
    "cast_chain": [
        (['%s = cast %g {to = type(i32), rounding = "rtne"} : i32',
          '%r = cast %s {to = type(i64), rounding = "rtne"} : i64'],
         ['%r = cast %g {to = type(i64), rounding = "rtne"} : i64', "%r"]),
        (['%s = cast %h {to = type(f32), rounding = "rtne"} : f32',
          '%r = cast %s {to = type(f16), rounding = "rtz"} : f16'], ["%h"]),
        (['%s = cast %f {to = type(f16), rounding = "rtne"} : f16',
          '%r = cast %s {to = type(f32), rounding = "rtne"} : f32'],
         ['%s = cast %f {to = type(f16), rounding = "rtne"} : f16',
          '%r = cast %s {to = type(f32), rounding = "rtne"} : f32', "%r"]),
    ],
    "bitcast_nothing": [(["%r = bitcast %x {to = type(i32)} : i32"], ["%x"])],
    "bitcast_chain": [
        (["%s = bitcast %f {to = type(i32)} : i32", "%r = bitcast %s {to = type(u32)} : u32"],
         ["%r = bitcast %f {to = type(u32)} : u32", "%r"]),
    ],
    "addptr_zero": [([i32("z", 0), "%r = addptr %p %z : *i32"], ["%p"])],
    "reshaped_constant": [
        ([i32("k", 3), "%r = splat %k {shape = [8]} : tile<8xi32>"],
         ["%r = constant {value = 3, type = tile<8xi32>} : tile<8xi32>", "%r"]),
    ],
    "reshaped_splat": [
        (["%s = splat %x {shape = [8]} : tile<8xi32>", "%r = expand_dims %s {axis = 0} : tile<1x8xi32>"],
         ["%r = splat %x {shape = [1, 8]} : tile<1x8xi32>", "%r"]),
    ],
    "same_shape": [(["%r = reshape %t {shape = [8]} : tile<8xi32>"], ["%t"])],
    "permute_nothing": [(["%r = permute %m {order = [0, 1]} : tile<4x8xi32>"], ["%m"])],
    "permute_chain": [
        (["%s = permute %m {order = [1, 0]} : tile<8x4xi32>",
          "%r = permute %s {order = [1, 0]} : tile<4x8xi32>"], ["%m"]),
    ],
    "reshape_chain": [
        (["%s = reshape %t {shape = [2, 4]} : tile<2x4xi32>",
          "%r = reshape %s {shape = [4, 2]} : tile<4x2xi32>"],
         ["%r = reshape %t {shape = [4, 2]} : tile<4x2xi32>", "%r"]),
    ],
    "broadcast_chain": [
        (["%e = expand_dims %t {axis = 0} : tile<1x8xi32>", "%q = expand_dims %e {axis = 0} : tile<1x1x8xi32>",
          "%s = broadcast %q {shape = [1, 2, 8]} : tile<1x2x8xi32>",
          "%r = broadcast %s {shape = [4, 2, 8]} : tile<4x2x8xi32>"],
         ["%e = expand_dims %t {axis = 0} : tile<1x8xi32>", "%q = expand_dims %e {axis = 0} : tile<1x1x8xi32>",
          "%r = broadcast %q {shape = [4, 2, 8]} : tile<4x2x8xi32>", "%r"]),
    ],
    "split_join": [
        (["%j = join %t %u : tile<8x2xi32>", "%q, %r = split %j : tile<8xi32>, tile<8xi32>"], ["%u"]),
    ],
    "splat_through": [
        (["%s = splat %x {shape = [8]} : tile<8xi32>", "%q = splat %y {shape = [8]} : tile<8xi32>",
          "%r = add %s %q : tile<8xi32>"],
         ["%r = add %x %y : i32", "%r_1 = splat %r {shape = [8]} : tile<8xi32>", "%r_1"]),
    ],
    "addptr_splats": [
        (["%s = splat %p {shape = [8]} : tile<8x*i32>", "%q = addptr %s %t : tile<8x*i32>",
          "%v = splat %x {shape = [8]} : tile<8xi32>", "%r = addptr %q %v : tile<8x*i32>"],
         ["%0 = addptr %p %x : *i32", "%1 = splat %0 {shape = [8]} : tile<8x*i32>",
          "%r = addptr %1 %t : tile<8x*i32>", "%r"]),
    ],
    "if_constant": [
        (["%k = constant {value = True, type = i1} : i1",
          "%r = if %k : i32 then=() {\n %n = neg %x : i32\n yield values=[%n]\n} "
          "otherwise=() {\n yield values=[%y]\n}"],
         ["%n = neg %x : i32", "%n"]),
    ],
    "for_short": [
        ([i32("l", 5), i32("k", 1),
          "%r = for %l %k %k inits=[%x] {num_stages = 0, unroll = 1} : i32 body=(%i: i32, %q: i32) {\n"
          " %n = neg %q : i32\n yield values=[%n]\n}"], ["%x"]),
        ([i32("l", 0), i32("k", 1),
          "%r = for %l %k %k inits=[%x] {num_stages = 0, unroll = 1} : i32 body=(%i: i32, %q: i32) {\n"
          " %n = neg %q : i32\n yield values=[%n]\n}"], ["%n = neg %x : i32", "%n"]),
    ],
    "loop_invariant": [
        ([i32("z", 0), i32("k", 1),
          "%q, %r = for %z %x %k inits=[%y, %x] {num_stages = 0, unroll = 1} : i32, i32"
          " body=(%i: i32, %a_1: i32, %b: i32) {\n %n = add %a_1 %b : i32\n yield values=[%a_1, %n]\n}"],
         [i32("z", 0), i32("k", 1),
          "%r = for %z %x %k inits=[%x] {num_stages = 0, unroll = 1} : i32"
          " body=(%i: i32, %b: i32) {\n %n = add %y %b : i32\n yield values=[%n]\n}", "%r"]),
        ([i32("z", 0), i32("k", 1),
          "%r = for %z %x %k inits=[%k] {num_stages = 0, unroll = 1} : i32 body=(%i: i32, %q: i32) {\n "
          + i32("e", 1) + "\n store %p %q {cache = \"\", eviction = \"\"}\n yield values=[%e]\n}"],
         [i32("z", 0), i32("k", 1),
          "for %z %x %k inits=[] {num_stages = 0, unroll = 1} body=(%i: i32) {\n "
          "store %p %k {cache = \"\", eviction = \"\"}\n yield values=[]\n}", "%k"]),
        (["%q, %r = while inits=[%y, %x] : i32, i32 before=(%a_1: i32, %b: i32) {\n"
          " %l = compare %b %a_1 {predicate = \"lt\"} : i1\n condition %l values=[%a_1, %b]\n}"
          " body=(%a_2: i32, %b_1: i32) {\n %n = add %a_2 %b_1 : i32\n yield values=[%a_2, %n]\n}"],
         ["%r = while inits=[%x] : i32 before=(%b: i32) {\n"
          " %l = compare %b %y {predicate = \"lt\"} : i1\n condition %l values=[%b]\n}"
          " body=(%b_1: i32) {\n %n = add %y %b_1 : i32\n yield values=[%n]\n}", "%r"]),
    ],
    "load_mask": [
        (["%k = constant {value = False, type = i1} : i1",
          '%r = load %p mask=%k other=%x {cache = "", eviction = "", volatile = False} : i32'], ["%x"]),
        (["%k = constant {value = True, type = i1} : i1",
          '%r = load %p mask=%k other=%x {cache = ".cg", eviction = "", volatile = False} : i32'],
         ['%r = load %p {cache = ".cg", eviction = "", volatile = False} : i32', "%r"]),
    ],
    "store_mask": [
        (["%k = constant {value = False, type = i1} : i1",
          'store %p %x mask=%k {cache = "", eviction = ""}', "%r = neg %x : i32"], ["%r = neg %x : i32", "%r"]),
        (["%k = constant {value = True, type = i1} : i1",
          'store %p %x mask=%k {cache = ".wt", eviction = ""}', "%r = neg %x : i32"],
         ['store %p %x {cache = ".wt", eviction = ""}', "%r = neg %x : i32", "%r"]),
    ],
    "thin_load": [
        (["%r = block_load %p sizes=[%x, %y, %x] strides=[%y, %x, %y] offsets=[%x, %x, %y] {shape = [1, 4, 8],"
          ' checked = [1, 0, 1], padding = "zero", cache = "", eviction = ""} : tile<1x4x8xi32>'],
         ["%r = block_load %p sizes=[%x, %y, %x] strides=[%y, %x, %y] offsets=[%x, %x, %y] {shape = [4, 8],"
          ' checked = [1, 0, 1], padding = "zero", cache = "", eviction = ""} : tile<4x8xi32>',
          "%r_1 = reshape %r {shape = [1, 4, 8]} : tile<1x4x8xi32>", "%r_1"]),
    ],
    "thin_store": [
        (["%v = reshape %m {shape = [1, 1, 4, 8]} : tile<1x1x4x8xi32>",
          "block_store %p sizes=[%x, %y, %x, %x] strides=[%y, %x, %y, %x] offsets=[%x, %x, %y, %y] %v"
          ' {checked = [1, 0, 1, 1], cache = "", eviction = ""}', "%r = neg %x : i32"],
         ["block_store %p sizes=[%x, %y, %x, %x] strides=[%y, %x, %y, %x] offsets=[%x, %x, %y, %y] %m"
          ' {checked = [1, 0, 1, 1], cache = "", eviction = ""}', "%r = neg %x : i32", "%r"]),
    ],
    "known_condition": [
        (["%k = constant {value = True, type = i1} : i1", 'assert %k {message = ""}', "assume %k",
          "%r = neg %x : i32"], ["%r = neg %x : i32", "%r"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "expected"),
    [pytest.param(*case, id=f"{name}-{i}") for name, cases in CASES.items() for i, case in enumerate(cases)],
)
def test_rule(body, expected):
    def text(lines: list[str], shown: str) -> str:
        print_op = f'print values=[{shown}] {{prefix = "", hex = False}}'
        return print_function(verify(parse_function("\n".join([HEAD + " {", *lines, print_op, "}"]))))

    function = verify(dce(fold(parse_function(text(body, "%r")))))
    assert print_function(function) == text(expected[:-1], expected[-1])


@pytest.mark.parametrize(
    "loop",
    [
        "%r = for %z %x %k inits=[%k] {num_stages = 0, unroll = 1} : i32 body=(%i: i32, %q: i32) {\n "
        + i32("e", 2) + '\n store %p %q {cache = "", eviction = ""}\n yield values=[%e]\n}',
        "%q, %r = while inits=[%y, %x] : i32, i32 before=(%a_1: i32, %b: i32) {\n"
        ' %l = compare %b %a_1 {predicate = "lt"} : i1\n condition %l values=[%b, %b]\n}'
        ' body=(%a_2: i32, %b_1: i32) {\n store %p %a_2 {cache = "", eviction = ""}\n'
        " %n = add %b_1 %k : i32\n yield values=[%a_2, %n]\n}",
    ],
    ids=["another constant", "another value behind the condition"],
)  # fmt: skip
def test_what_a_loop_changes_stays_carried(loop):
    text = "\n".join([HEAD + " {", i32("z", 0), i32("k", 1), loop, 'print values=[%r] {prefix = "", hex = False}', "}"])
    before = parse_function(text)
    carried = [len(op.inits) for op in before.walk() if hasattr(op, "inits")]
    assert [len(op.inits) for op in verify(fold(before)).walk() if hasattr(op, "inits")] == carried


def test_every_rule_has_a_case_and_a_law():
    rules = {function for rules in RULES.values() for function in rules}
    assert {rule.__name__ for rule in rules} == set(CASES)
    assert len({rule.__name__ for rule in rules}) == len(rules)
    assert all(rule.__doc__ for rule in rules)


def test_a_dot_that_others_read_is_computed_once():
    lines = [
        "%z = constant {value = 0.0, type = tile<16x16xf32>} : tile<16x16xf32>",
        '%e = dot %a %a %z {precision = "ieee"} : tile<16x16xf32>',
        "%r = add %e %d : tile<16x16xf32>",
    ]
    text = "\n".join([HEAD + " {", *lines, 'print values=[%e, %r] {prefix = "", hex = False}', "}"])
    left = [op.mnemonic for op in dce(fold(parse_function(text))).walk()]
    assert (left.count("dot"), left.count("add")) == (1, 1)


def test_division_by_a_zero_constant_is_left_alone():
    body = [i32("z", 0), "%r = int_div %x %z : i32", i32("k", 4), "%q = int_div %k %z : i32"]
    text = "\n".join([HEAD + " {", *body, 'print values=[%r, %q] {prefix = "", hex = False}', "}"])
    assert [op.mnemonic for op in fold(parse_function(text)).walk()].count("int_div") == 2
