#include "tensor_ops.h"

#include <gtest/gtest.h>

namespace {

using cmake_tensor::moving_average;
using cmake_tensor::pairwise;
using cmake_tensor::summary;

TEST(MovingAverage, OfFour) {
  const auto found = moving_average(at::arange(4, at::kDouble), 2);
  EXPECT_TRUE(at::equal(found, at::tensor({0.5, 1.5, 2.5}, at::kDouble)));
}

TEST(MovingAverage, RefusesAWindowThatIsTooWide) {
  EXPECT_THROW(moving_average(at::ones({3}), 4), c10::Error);
}

TEST(Pairwise, OfPoints) {
  const auto left = at::tensor({0.0, 0.0, 3.0, 4.0}).reshape({2, 2});
  const auto right = at::zeros({1, 2}, left.options());
  EXPECT_TRUE(at::allclose(pairwise(left, right, 2), at::tensor({0.0, 5.0}).reshape({2, 1})));
  EXPECT_TRUE(at::allclose(pairwise(left, right, 1), at::tensor({0.0, 7.0}).reshape({2, 1})));
}

TEST(Summary, OfThree) {
  const auto [least, most, mean] = summary(at::tensor({1.0, 2.0, 6.0}));
  EXPECT_DOUBLE_EQ(least, 1);
  EXPECT_DOUBLE_EQ(most, 6);
  EXPECT_DOUBLE_EQ(mean, 3);
}

}  // namespace
