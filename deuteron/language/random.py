"""The generators of random numbers, as ``tl.random.philox`` and as a module to import from."""

from deuteron.compiler.language import pair_uniform_to_normal as pair_uniform_to_normal
from deuteron.compiler.language import philox as philox
from deuteron.compiler.language import philox_impl as philox_impl
from deuteron.compiler.language import rand as rand
from deuteron.compiler.language import rand4x as rand4x
from deuteron.compiler.language import randint as randint
from deuteron.compiler.language import randint4x as randint4x
from deuteron.compiler.language import randn as randn
from deuteron.compiler.language import randn4x as randn4x
from deuteron.compiler.language import uint_to_uniform_float as uint_to_uniform_float
