"""What a program reads of its SM and of its own launch, under the name of Triton's module."""

from deuteron.compiler.language.cuda import globaltimer as globaltimer
from deuteron.compiler.language.cuda import num_threads as num_threads
from deuteron.compiler.language.cuda import num_warps as num_warps
from deuteron.compiler.language.cuda import smid as smid
