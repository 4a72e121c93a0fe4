"""exllamav2: norms, and a matrix of four bits a weight, unpacked and multiplied."""

import torch
from exllamav2.ext import exllamav2_ext as ext
from exllamav2.ext import make_q_matrix

from benchmarks.packages.computed import computed

torch.manual_seed(1)
rows, columns, group = 512, 256, 128
x = torch.randn(8, rows).half().cuda()
y = torch.empty_like(x)
ext.rms_norm(x, torch.randn(rows).half().cuda(), y, 1e-6)
computed("rms_norm", y)
capped = x.clone()
ext.softcap_(capped, 0.5)
computed("softcap", capped)
words = -(2**31), 2**31 - 1
packed = {
    "qweight": torch.randint(*words, (rows // 8, columns), dtype=torch.int32).cuda(),
    "qzeros": torch.randint(*words, (rows // group, columns // 8), dtype=torch.int32).cuda(),
    "scales": torch.rand(rows // group, columns).half().cuda() / 16,
}
temporary = torch.zeros(rows * columns + 128).half().cuda()
matrix = make_q_matrix(packed, temporary)
whole = torch.zeros(rows, columns).half().cuda()
ext.reconstruct(matrix, whole)
computed("reconstruct", whole)
for few in (1, 4):
    product = torch.zeros(few, columns).half().cuda()
    ext.gemm_half_q_half(x[:few].contiguous(), matrix, product, False)
    exact = x[:few].double() @ whole.double()
    assert (product.double() - exact).abs().max() < 0.05 * exact.abs().max()
many = torch.zeros(8, columns).half().cuda()
ext.gemm_half_q_half(x, matrix, many, False)
torch.cuda.synchronize()
ext.free_q_matrix(matrix)
