"""The texts that small functions are made of: a head with parameters of many types, and constants."""

HEAD = (
    "func @f(%x: i32, %y: i32, %f: f32, %c: i1, %p: *i32, %t: tile<8xi32>, %u: tile<8xi32>, %g: i8,"
    " %h: f16, %a: tile<16x16xf16>, %d: tile<16x16xf32>, %m: tile<4x8xi32>)"
)


def i32(name: str, value: int) -> str:
    return f"%{name} = constant {{value = {value}, type = i32}} : i32"


def f32(name: str, value: str) -> str:
    return f"%{name} = constant {{value = {value}, type = f32}} : f32"
