// The holes (free blocks) of a pool in an order: a treap (Seidel and Aragon 1996) whose priorities are a hash of the
// block's id, so that the same calls build the same tree on every machine. Insert, erase and every search take O(log n)
// expected.
//
//   by size, then offset     the first hole that is large enough is the best fit
//   by offset                each node knows the largest hole below it: a first fit from either end turns at each node
//                            towards that end as long as something large enough lies there
//
// Standard library only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lowtide::pool {

using BlockId = std::int32_t;
inline constexpr BlockId kNone = -1;

// SplitMix64's last step: a bijection, so no two ids have one priority.
inline std::uint64_t priority_of(BlockId id) {
  std::uint64_t z = (static_cast<std::uint64_t>(id) + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

enum class HoleOrder : std::uint8_t { kBySize, kByOffset };

template <HoleOrder kOrder>
class HoleTree {
 public:
  void insert(BlockId id, std::int64_t size, std::int64_t offset) {
    if (static_cast<std::size_t>(id) >= nodes_.size()) nodes_.resize(static_cast<std::size_t>(id) + 1);
    nodes_[id] = {size, offset, size, kNone, kNone};
    const std::uint64_t priority = priority_of(id);
    BlockId* link = &root_;
    while (*link != kNone && priority_of(*link) > priority) {
      Node& node = nodes_[*link];
      node.largest = std::max(node.largest, size);
      link = is_before(id, *link) ? &node.left : &node.right;
    }
    split(*link, id, nodes_[id].left, nodes_[id].right);
    *link = id;
    pull(id);
  }

  void erase(BlockId id) {
    BlockId* link = descend_to(id);
    *link = merge(nodes_[id].left, nodes_[id].right);
    pull_path();
  }

  // A hole grows or shrinks; by offset it passes no other one.
  void resize(BlockId id, std::int64_t size, std::int64_t offset) {
    if constexpr (kOrder == HoleOrder::kByOffset) {
      descend_to(id);
      nodes_[id].size = size;
      nodes_[id].offset = offset;
      pull(id);
      pull_path();
    } else if (stays_between_neighbours(id, size, offset)) {
      nodes_[id].size = size;
      nodes_[id].offset = offset;
    } else {
      erase(id);
      insert(id, size, offset);
    }
  }

  // The first hole in this order that is large enough: by size the best fit, by offset the lowest one.
  BlockId first_at_least(std::int64_t size) const {
    if constexpr (kOrder == HoleOrder::kByOffset) {
      return nearest<&Node::left, &Node::right>(size);
    } else {
      BlockId best = kNone;
      for (BlockId at = root_; at != kNone;) {
        const Node& node = nodes_[at];
        if (node.size >= size) best = at;
        at = node.size >= size ? node.left : node.right;
      }
      return best;
    }
  }

  // The hole of the highest offset that is large enough.
  BlockId last_at_least(std::int64_t size) const {
    static_assert(kOrder == HoleOrder::kByOffset, "only the order by offset knows the largest hole of each subtree");
    return nearest<&Node::right, &Node::left>(size);
  }

  // The hole that begins at an offset, or kNone.
  BlockId at(std::int64_t offset) const {
    static_assert(kOrder == HoleOrder::kByOffset, "by size nothing is known of offsets");
    BlockId at = root_;
    while (at != kNone && nodes_[at].offset != offset) {
      at = offset < nodes_[at].offset ? nodes_[at].left : nodes_[at].right;
    }
    return at;
  }

  std::int64_t largest() const {
    static_assert(kOrder == HoleOrder::kByOffset, "only the order by offset knows the largest hole of each subtree");
    return largest_of(root_);
  }

 private:
  struct Node {
    std::int64_t size = 0;
    std::int64_t offset = 0;
    std::int64_t largest = 0;  // of this node and all below it; kept in the order by offset only
    BlockId left = kNone;
    BlockId right = kNone;
  };

  bool is_before(BlockId a, BlockId b) const { return is_before(nodes_[a], nodes_[b]); }

  static bool is_before(const Node& x, const Node& y) {
    if constexpr (kOrder == HoleOrder::kBySize) {
      if (x.size != y.size) return x.size < y.size;
    }
    return x.offset < y.offset;
  }

  std::int64_t largest_of(BlockId id) const { return id == kNone ? 0 : nodes_[id].largest; }

  void pull(BlockId id) {
    if constexpr (kOrder == HoleOrder::kByOffset) {
      Node& node = nodes_[id];
      node.largest = std::max({node.size, largest_of(node.left), largest_of(node.right)});
    }
  }

  // Whether a hole of another size would have the same holes before and after it.
  bool stays_between_neighbours(BlockId id, std::int64_t size, std::int64_t offset) const {
    const Node changed{size, offset, size, kNone, kNone};
    BlockId before = kNone;
    BlockId after = kNone;
    for (BlockId at = root_; at != id;) {
      const bool is_left = is_before(id, at);
      (is_left ? after : before) = at;
      at = is_left ? nodes_[at].left : nodes_[at].right;
    }
    for (BlockId at = nodes_[id].left; at != kNone; at = nodes_[at].right) before = at;
    for (BlockId at = nodes_[id].right; at != kNone; at = nodes_[at].left) after = at;
    return (before == kNone || is_before(nodes_[before], changed)) &&
           (after == kNone || is_before(changed, nodes_[after]));
  }

  // The link that points to a node; path_ holds what lies above it.
  BlockId* descend_to(BlockId id) {
    path_.clear();
    BlockId* link = &root_;
    while (*link != id) {
      path_.push_back(*link);
      Node& node = nodes_[*link];
      link = is_before(id, *link) ? &node.left : &node.right;
    }
    return link;
  }

  void pull_path() {
    if constexpr (kOrder == HoleOrder::kByOffset) {
      for (std::size_t i = path_.size(); i-- > 0;) pull(path_[i]);
    }
  }

  // Cut a subtree in two: what comes before the node `key`, and what comes after it.
  void split(BlockId root, BlockId key, BlockId& before, BlockId& after) {
    if (root == kNone) {
      before = after = kNone;
    } else if (is_before(root, key)) {
      before = root;
      split(nodes_[root].right, key, nodes_[root].right, after);
      pull(root);
    } else {
      after = root;
      split(nodes_[root].left, key, before, nodes_[root].left);
      pull(root);
    }
  }

  // One tree of two, where all of `before` comes before all of `after`.
  BlockId merge(BlockId before, BlockId after) {
    if (before == kNone) return after;
    if (after == kNone) return before;
    const bool is_before_on_top = priority_of(before) > priority_of(after);
    const BlockId top = is_before_on_top ? before : after;
    if (is_before_on_top) {
      nodes_[top].right = merge(nodes_[top].right, after);
    } else {
      nodes_[top].left = merge(before, nodes_[top].left);
    }
    pull(top);
    return top;
  }

  template <BlockId Node::*kNear, BlockId Node::*kFar>
  BlockId nearest(std::int64_t size) const {
    if (largest_of(root_) < size) return kNone;
    BlockId at = root_;
    for (;;) {
      const Node& node = nodes_[at];
      if (largest_of(node.*kNear) >= size) {
        at = node.*kNear;
      } else if (node.size >= size) {
        return at;
      } else {
        at = node.*kFar;
      }
    }
  }

  std::vector<Node> nodes_;  // by BlockId
  std::vector<BlockId> path_;
  BlockId root_ = kNone;
};

}  // namespace lowtide::pool
