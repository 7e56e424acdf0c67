"""Attention of examples/attention.py, forward and backward, beside cuDNN, FlashAttention-2 and Triton (same source).

python benchmarks/attention.py [--shapes B,H,N,D ...] [--dtype bf16|f16|fp8] [--only forward backward] [--peers]
                               [--configs FILE] [--limit SECONDS] [--quick] [--out FILE]

cuDNN and FlashAttention-2 are the backends of torch's scaled_dot_product_attention. Results are checked against them
(fp8 and small shapes: against f32 arithmetic) on N(0, 1) inputs and poisoned outputs, then timed in turns with a cold
L2. 4 B H N^2 D operations forward, 2.5 times that backward, half of it if causal. deuteron and, with ``--peers``,
Triton each take their best of the same configurations; ``--configs`` replaces deuteron's: JSON, a list of objects with
BLOCK_M, BLOCK_N, num_warps, num_stages and ``schedule``, an object of further options; lists are choices.
"""
