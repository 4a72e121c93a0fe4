"""nerfacc: rays through a grid, and what they weigh."""

import nerfacc
import torch

from benchmarks.packages.computed import computed

torch.manual_seed(1)
grid = nerfacc.OccGridEstimator(roi_aabb=[-1, -1, -1, 1, 1, 1], resolution=32).cuda()
grid.binaries = torch.rand(1, 32, 32, 32).cuda() > 0.5
origins = torch.rand(64, 3).cuda() * 4 - 2
directions = torch.nn.functional.normalize(-origins + 0.3 * torch.randn(64, 3).cuda(), dim=-1)
indices, starts, ends = grid.sampling(origins, directions, render_step_size=1e-2)
densities = torch.rand(starts.shape[0]).cuda()
weights, transmitted, alphas = nerfacc.render_weight_from_density(
    starts, ends, densities, ray_indices=indices, n_rays=64
)
for name in ("indices", "starts", "weights", "transmitted"):
    computed(name, globals()[name])
