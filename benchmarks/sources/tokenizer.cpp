// A byte-pair tokenizer with std containers: training, encoding into padded tensors, decoding.
#include <algorithm>
#include <cctype>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace {

using Pair = std::pair<int64_t, int64_t>;

struct PairHash {
  size_t operator()(const Pair& pair) const {
    return std::hash<int64_t>()(pair.first) * 1000003u ^ std::hash<int64_t>()(pair.second);
  }
};

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (unsigned char c : text) {
    if (std::isspace(c) != 0 && !word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
    word.push_back(static_cast<char>(c));
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

std::vector<int64_t> bytes_of(const std::string& word) {
  std::vector<int64_t> symbols;
  std::transform(word.begin(), word.end(), std::back_inserter(symbols), [](char c) {
    return static_cast<int64_t>(static_cast<unsigned char>(c));
  });
  return symbols;
}

void merge(std::vector<int64_t>& symbols, const Pair& pair, int64_t merged) {
  size_t kept = 0;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (i + 1 < symbols.size() && symbols[i] == pair.first && symbols[i + 1] == pair.second) {
      symbols[kept++] = merged;
      ++i;
    } else {
      symbols[kept++] = symbols[i];
    }
  }
  symbols.resize(kept);
}

std::unordered_map<Pair, int64_t, PairHash> ranks_of(const std::vector<std::tuple<int64_t, int64_t>>& merges) {
  std::unordered_map<Pair, int64_t, PairHash> ranks;
  for (size_t i = 0; i < merges.size(); ++i) {
    ranks.emplace(Pair(std::get<0>(merges[i]), std::get<1>(merges[i])), static_cast<int64_t>(i));
  }
  return ranks;
}

std::vector<int64_t> encode_word(const std::string& word, const std::unordered_map<Pair, int64_t, PairHash>& ranks) {
  auto symbols = bytes_of(word);
  while (symbols.size() > 1) {
    std::priority_queue<std::pair<int64_t, size_t>, std::vector<std::pair<int64_t, size_t>>, std::greater<>> best;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found != ranks.end()) best.emplace(found->second, i);
    }
    if (best.empty()) break;
    const auto [rank, at] = best.top();
    merge(symbols, {symbols[at], symbols[at + 1]}, 256 + rank);
  }
  return symbols;
}

}  // namespace

std::vector<std::tuple<int64_t, int64_t>> train(const std::string& text, int64_t count) {
  TORCH_CHECK_VALUE(count >= 0, "count is negative");
  std::map<std::string, int64_t> frequency;
  for (auto& word : words_of(text)) ++frequency[word];
  std::vector<std::pair<std::vector<int64_t>, int64_t>> words;
  for (const auto& [word, times] : frequency) words.emplace_back(bytes_of(word), times);
  std::vector<std::tuple<int64_t, int64_t>> merges;
  while (static_cast<int64_t>(merges.size()) < count) {
    std::unordered_map<Pair, int64_t, PairHash> pairs;
    for (const auto& [symbols, times] : words) {
      for (size_t i = 0; i + 1 < symbols.size(); ++i) pairs[{symbols[i], symbols[i + 1]}] += times;
    }
    if (pairs.empty()) break;
    const auto best = *std::max_element(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) {
      return std::tie(a.second, b.first) < std::tie(b.second, a.first);
    });
    const auto merged = 256 + static_cast<int64_t>(merges.size());
    for (auto& [symbols, times] : words) merge(symbols, best.first, merged);
    merges.emplace_back(best.first.first, best.first.second);
  }
  return merges;
}

std::tuple<at::Tensor, at::Tensor> encode(
    const std::vector<std::string>& texts, const std::vector<std::tuple<int64_t, int64_t>>& merges, int64_t padding) {
  const auto ranks = ranks_of(merges);
  std::unordered_map<std::string, std::vector<int64_t>> known;
  std::vector<std::vector<int64_t>> rows;
  size_t longest = 0;
  for (const auto& text : texts) {
    auto& row = rows.emplace_back();
    for (const auto& word : words_of(text)) {
      auto found = known.find(word);
      if (found == known.end()) found = known.emplace(word, encode_word(word, ranks)).first;
      row.insert(row.end(), found->second.begin(), found->second.end());
    }
    longest = std::max(longest, row.size());
  }
  auto tokens = at::full({static_cast<int64_t>(rows.size()), static_cast<int64_t>(longest)}, padding, at::kLong);
  auto lengths = at::empty({static_cast<int64_t>(rows.size())}, at::kLong);
  auto to = tokens.accessor<int64_t, 2>();
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < rows[i].size(); ++j) to[static_cast<int64_t>(i)][static_cast<int64_t>(j)] = rows[i][j];
    lengths[static_cast<int64_t>(i)] = static_cast<int64_t>(rows[i].size());
  }
  return {tokens, lengths};
}

std::string decode(const at::Tensor& tokens, const std::vector<std::tuple<int64_t, int64_t>>& merges) {
  std::vector<std::string> vocabulary;
  for (int i = 0; i < 256; ++i) vocabulary.emplace_back(1, static_cast<char>(i));
  for (const auto& [left, right] : merges) vocabulary.push_back(vocabulary.at(left) + vocabulary.at(right));
  std::string text;
  auto flat = tokens.to(at::kLong).contiguous();
  for (int64_t i = 0; i < flat.numel(); ++i) text += vocabulary.at(flat.const_data_ptr<int64_t>()[i]);
  return text;
}
