// Attention of half precision, tile by tile with an online softmax: out = softmax(q k^T * scale) v.
//
// A block has TILE_Q queries of one head. Tiles of TILE_K keys and values come through shared
// memory in a ring of STAGES, copied ahead by cp.async. The threads of a row share its keys for the
// scores, and its dimensions for the output. All sums are of float precision.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_fp16.h>

namespace {

constexpr int HEAD_DIM = {{head_dim}};
constexpr int TILE_Q = {{tile_q}};    // queries of a block
constexpr int TILE_K = {{tile_k}};    // keys of a step
constexpr int STAGES = {{stages}};    // tiles of keys and values in shared memory
constexpr int WARPS = {{warps}};      // of a block
constexpr int VECTOR = {{vector}};    // halves that are copied and read at once
constexpr int PADDING = {{padding}};  // halves behind each row in shared memory
constexpr bool CAUSAL = {{causal}};   // a query sees the keys up to its own position
constexpr bool BASE_2 = {{base_2}};   // exp2f with a scale that is made for it, or expf

constexpr int THREADS = WARPS * 32;
constexpr int PER_ROW = THREADS / TILE_Q;  // threads that share a query; all of one warp
constexpr int ROW = HEAD_DIM + PADDING;
constexpr int OWN = HEAD_DIM / PER_ROW;  // dimensions of the output in a thread
constexpr int CHUNKS = OWN / VECTOR;
constexpr int TILE = TILE_K * ROW;
constexpr float NEVER = -1e30f;

static_assert(PER_ROW >= 1 && PER_ROW <= 32 && THREADS % TILE_Q == 0);
static_assert(OWN % VECTOR == 0 && HEAD_DIM % VECTOR == 0 && ROW % VECTOR == 0);

struct alignas(2 * VECTOR) Vector {
  __half at[VECTOR];
};

struct Shape {
  int queries, keys;
  float scale;
};

constexpr size_t shared_bytes() {
  return sizeof(__half) * (TILE_Q * ROW + 2 * STAGES * TILE) + sizeof(float) * TILE_Q * TILE_K;
}

__device__ float power(float x) { return BASE_2 ? exp2f(x) : __expf(x); }

__device__ void copy_ahead(__half* to, const __half* from) {
  unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from),
               "n"(2 * VECTOR));
}

// Rows of a matrix into shared memory; those behind its end are zeros.
__device__ void fetch(__half* to, const __half* from, int first, int rows, int wanted) {
  constexpr int PARTS = HEAD_DIM / VECTOR;
  for (int i = threadIdx.x; i < wanted * PARTS; i += THREADS) {
    int row = i / PARTS, column = i % PARTS * VECTOR;
    __half* target = to + row * ROW + column;
    if (first + row < rows) {
      copy_ahead(target, from + int64_t(first + row) * HEAD_DIM + column);
    } else {
      for (int j = 0; j < VECTOR; ++j) target[j] = __float2half(0.0f);
    }
  }
}

__device__ void commit() { asm volatile("cp.async.commit_group;"); }

template <int LEFT>
__device__ void wait_for_all_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT));
}

__device__ float dot(const __half* one, const __half* other) {
  float sum = 0.0f;
#pragma unroll 4
  for (int i = 0; i < HEAD_DIM; i += VECTOR) {
    Vector a = *reinterpret_cast<const Vector*>(one + i);
    Vector b = *reinterpret_cast<const Vector*>(other + i);
#pragma unroll
    for (int j = 0; j < VECTOR; ++j) sum += __half2float(a.at[j]) * __half2float(b.at[j]);
  }
  return sum;
}

__global__ void __launch_bounds__(THREADS)
attention_kernel(const __half* q, const __half* k, const __half* v, __half* out, Shape shape) {
  extern __shared__ __align__(16) unsigned char memory[];
  __half* tile_q = reinterpret_cast<__half*>(memory);
  __half* tile_k = tile_q + TILE_Q * ROW;
  __half* tile_v = tile_k + STAGES * TILE;
  float* scores = reinterpret_cast<float*>(tile_v + STAGES * TILE);

  const int first = blockIdx.x * TILE_Q;
  const int row = threadIdx.x / PER_ROW, lane = threadIdx.x % PER_ROW;
  const int query = first + row;
  const int64_t head = blockIdx.y;
  q += head * shape.queries * HEAD_DIM;
  out += head * shape.queries * HEAD_DIM;
  k += head * shape.keys * HEAD_DIM;
  v += head * shape.keys * HEAD_DIM;

  const int seen = CAUSAL ? min(shape.keys, first + TILE_Q) : shape.keys;
  const int tiles = (seen + TILE_K - 1) / TILE_K;

  fetch(tile_q, q, first, shape.queries, TILE_Q);
  for (int ahead = 0; ahead < STAGES; ++ahead) {  // the queries come with the first tile
    if (ahead < tiles) {
      fetch(tile_k + ahead * TILE, k, ahead * TILE_K, shape.keys, TILE_K);
      fetch(tile_v + ahead * TILE, v, ahead * TILE_K, shape.keys, TILE_K);
    }
    commit();
  }

  float sums[OWN];
#pragma unroll
  for (int i = 0; i < OWN; ++i) sums[i] = 0.0f;
  float highest = NEVER, total = 0.0f;
  float* own_scores = scores + row * TILE_K;

  for (int tile = 0; tile < tiles; ++tile) {
    wait_for_all_but<STAGES - 1>();
    __syncthreads();
    const __half* keys = tile_k + tile % STAGES * TILE;
    const __half* values = tile_v + tile % STAGES * TILE;

    float best = NEVER;
    for (int j = lane; j < TILE_K; j += PER_ROW) {
      int key = tile * TILE_K + j;
      bool is_seen = key < shape.keys && (!CAUSAL || key <= query);
      float score = is_seen ? dot(tile_q + row * ROW, keys + j * ROW) * shape.scale : NEVER;
      own_scores[j] = score;
      best = fmaxf(best, score);
    }
#pragma unroll
    for (int step = PER_ROW / 2; step > 0; step /= 2)
      best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, step));
    best = fmaxf(best, highest);

    float sum = 0.0f;
    for (int j = lane; j < TILE_K; j += PER_ROW) {
      float weight = own_scores[j] <= NEVER ? 0.0f : power(own_scores[j] - best);
      own_scores[j] = weight;
      sum += weight;
    }
#pragma unroll
    for (int step = PER_ROW / 2; step > 0; step /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, step);
    const float correction = power(highest - best);
    total = total * correction + sum;
    highest = best;
    __syncwarp();  // a row's weights are of threads of one warp

#pragma unroll
    for (int i = 0; i < OWN; ++i) sums[i] *= correction;
    for (int j = 0; j < TILE_K; ++j) {
      const float weight = own_scores[j];
#pragma unroll
      for (int i = 0; i < CHUNKS; ++i) {
        Vector part = *reinterpret_cast<const Vector*>(
            values + j * ROW + (i * PER_ROW + lane) * VECTOR);
#pragma unroll
        for (int n = 0; n < VECTOR; ++n)
          sums[i * VECTOR + n] += weight * __half2float(part.at[n]);
      }
    }
    __syncthreads();  // nobody reads this tile any more
    if (tile + STAGES < tiles) {
      const int next = tile + STAGES;
      fetch(tile_k + tile % STAGES * TILE, k, next * TILE_K, shape.keys, TILE_K);
      fetch(tile_v + tile % STAGES * TILE, v, next * TILE_K, shape.keys, TILE_K);
    }
    commit();
  }

  if (query < shape.queries) {
    const float factor = total > 0.0f ? 1.0f / total : 0.0f;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
      Vector part;
#pragma unroll
      for (int n = 0; n < VECTOR; ++n) part.at[n] = __float2half(sums[i * VECTOR + n] * factor);
      *reinterpret_cast<Vector*>(
          out + int64_t(query) * HEAD_DIM + (i * PER_ROW + lane) * VECTOR) = part;
    }
  }
}

void check(const at::Tensor& x, const char* name) {
  TORCH_CHECK(x.is_cuda() && x.scalar_type() == at::kHalf && x.is_contiguous(),
              name, " must be a contiguous tensor of halves on the GPU");
  TORCH_CHECK(x.dim() == 4 && x.size(3) == HEAD_DIM,
              name, " must have the shape (batch, heads, length, ", HEAD_DIM, ")");
  TORCH_CHECK(reinterpret_cast<uintptr_t>(x.data_ptr()) % sizeof(Vector) == 0,
              name, " must begin at a multiple of ", sizeof(Vector), " bytes");
}

}  // namespace

// q: (batch, heads, queries, head_dim), k and v: (batch, heads, keys, head_dim), all half.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  check(q, "q");
  check(k, "k");
  check(v, "v");
  TORCH_CHECK(k.sizes() == v.sizes() && q.size(0) == k.size(0) && q.size(1) == k.size(1),
              "q, k and v must have the same batch and heads, k and v the same length");
  const c10::cuda::CUDAGuard guard(q.device());
  at::Tensor out = at::empty_like(q);
  const float scale = 1.0f / sqrtf(float(HEAD_DIM));
  const Shape shape{int(q.size(2)), int(k.size(2)), BASE_2 ? scale * 1.4426950408889634f : scale};
  const dim3 blocks((shape.queries + TILE_Q - 1) / TILE_Q, unsigned(q.size(0) * q.size(1)));
  if (q.numel() == 0) return out;
  if (k.numel() == 0) return out.zero_();
  cudaError_t error = cudaFuncSetAttribute(
      attention_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes()));
  TORCH_CHECK(error == cudaSuccess, "attention: ", cudaGetErrorString(error));
  attention_kernel<<<blocks, THREADS, shared_bytes(), c10::cuda::getCurrentCUDAStream()>>>(
      reinterpret_cast<const __half*>(q.data_ptr<at::Half>()),
      reinterpret_cast<const __half*>(k.data_ptr<at::Half>()),
      reinterpret_cast<const __half*>(v.data_ptr<at::Half>()),
      reinterpret_cast<__half*>(out.data_ptr<at::Half>()), shape);
  error = cudaGetLastError();
  TORCH_CHECK(error == cudaSuccess, "attention: ", cudaGetErrorString(error));
  return out;
}
