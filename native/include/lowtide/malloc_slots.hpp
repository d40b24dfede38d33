// Where the loaded objects of this process keep the addresses of malloc and its kin, and how to change them.
//
//   libtorch_cpu.so  call malloc ──▶ slot (GOT entry, or a pointer with a relocation) ──▶ libc's malloc
//                                      └─ redirected: ──▶ a function of ours ──▶ libc's malloc
//
// The way of memray (bloomberg/memray, elf_shenanigans.cpp): walk the objects with dl_iterate_phdr, read the dynamic
// relocations, and write where one of them names a function of the family. Departures from it: slots are found once
// per set of objects (the loader counts how many it added and removed) and written from that list; a value that is not
// one we expect is left alone; each write is a compare-and-swap, so a loader that binds lazily at the same time wins.
//
// Locks: all writing happens within dl_iterate_phdr, which keeps objects from being unmapped. An object that another
// thread is loading right now is passed over as long as its read-only part is still writable.
//
// Linux with glibc, 64 bits. Standard library and libc only.
#pragma once

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#include <features.h>
#endif

#if defined(__linux__) && defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
#define LOWTIDE_HAS_MALLOC_SLOTS 1

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace lowtide {

#if defined(__x86_64__)
inline constexpr std::uint32_t kJumpSlot = R_X86_64_JUMP_SLOT;
inline constexpr std::uint32_t kGlobalData = R_X86_64_GLOB_DAT;
inline constexpr std::uint32_t kAbsolute = R_X86_64_64;
#else
inline constexpr std::uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT;
inline constexpr std::uint32_t kGlobalData = R_AARCH64_GLOB_DAT;
inline constexpr std::uint32_t kAbsolute = R_AARCH64_ABS64;
#endif

// A span of addresses, half-open.
struct Span {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool contains(std::uintptr_t address) const { return begin <= address && address < end; }
  bool contains(std::uintptr_t address, std::size_t size) const {
    return begin <= address && address <= end && size <= end - address;
  }
  bool empty() const { return begin >= end; }
  friend bool operator==(const Span&, const Span&) = default;
};

// A function of the family: what callers reach now, and what they shall reach.
struct Redirection {
  std::string_view name;
  std::uintptr_t real = 0;
  std::uintptr_t wrapper = 0;
};

// The parts of a loaded object that matter here, from its program headers.
struct LoadedObject {
  std::uintptr_t base = 0;
  const void* headers = nullptr;
  std::vector<Span> mapped;      // readable as long as the object is loaded
  std::vector<Span> writable;    // the mapped spans that were writable before the loader protected a part of them
  std::vector<Span> executable;  // code; a slot that is bound lazily points here at first
  Span protected_pages;          // written by the loader, then made read-only (RELRO)
  const ElfW(Dyn)* dynamic = nullptr;

  explicit LoadedObject(const dl_phdr_info& info) : base(info.dlpi_addr), headers(info.dlpi_phdr) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      const ElfW(Phdr)& header = info.dlpi_phdr[i];
      const Span span{base + header.p_vaddr, base + header.p_vaddr + header.p_memsz};
      if (header.p_type == PT_LOAD) {
        if (header.p_flags & PF_R) mapped.push_back(span);
        if (header.p_flags & PF_W) writable.push_back(span);
        if (header.p_flags & PF_X) executable.push_back(span);
      } else if (header.p_type == PT_GNU_RELRO) {
        protected_pages = {span.begin & ~(page - 1), span.end & ~(page - 1)};  // as glibc rounds
      } else if (header.p_type == PT_DYNAMIC) {
        dynamic = reinterpret_cast<const ElfW(Dyn)*>(span.begin);
      }
    }
  }

  static bool any_contains(const std::vector<Span>& spans, std::uintptr_t address, std::size_t size = 1) {
    return std::any_of(spans.begin(), spans.end(), [=](const Span& span) { return span.contains(address, size); });
  }
};

// One address that can be redirected.
struct Slot {
  std::uintptr_t address = 0;
  std::uint8_t function = 0;     // position in the list of redirections
  bool may_be_lazy = false;      // until the first call it points into its own object
  std::uintptr_t original = 0;   // what it held when it was redirected; 0 while it is not
};

// The slots of one object.
struct SlottedObject {
  std::uintptr_t base = 0;
  const void* headers = nullptr;
  Span protected_pages;  // those to be made writable first; empty if no slot lies there
  std::vector<Span> executable;
  std::vector<Slot> slots;
};

// The dynamic relocations of an object that name one of `names`.
class SlotFinder {
 public:
  SlotFinder(const LoadedObject& object, const std::vector<Redirection>& redirections)
      : object_(object), redirections_(redirections) {}

  std::vector<Slot> find() {
    if (!read_dynamic()) return {};
    scan(table(DT_JMPREL), number(DT_PLTRELSZ));
    scan(table(DT_RELA), number(DT_RELASZ));
    std::sort(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) { return a.address < b.address; });
    const auto is_same = [](const Slot& a, const Slot& b) { return a.address == b.address; };
    slots_.erase(std::unique(slots_.begin(), slots_.end(), is_same), slots_.end());  // the tables may overlap
    return std::move(slots_);
  }

 private:
  static constexpr std::size_t kNumTags = DT_JMPREL + 1;

  bool read_dynamic() {
    const auto start = reinterpret_cast<std::uintptr_t>(object_.dynamic);
    if (start == 0 || start % alignof(ElfW(Dyn)) != 0) return false;
    for (const ElfW(Dyn)* entry = object_.dynamic;; ++entry) {
      if (!is_mapped(reinterpret_cast<std::uintptr_t>(entry), sizeof *entry)) return false;
      if (entry->d_tag == DT_NULL) break;
      if (entry->d_tag > 0 && static_cast<std::size_t>(entry->d_tag) < kNumTags) {
        values_[static_cast<std::size_t>(entry->d_tag)] = entry->d_un.d_val;
      }
    }
    const bool is_known = number(DT_SYMENT) == sizeof(ElfW(Sym)) && table(DT_SYMTAB) != 0 && table(DT_STRTAB) != 0;
    const bool has_addends = number(DT_JMPREL) == 0 || number(DT_PLTREL) == DT_RELA;
    return is_known && has_addends && is_mapped(table(DT_STRTAB), number(DT_STRSZ));
  }

  std::uintptr_t number(std::size_t tag) const { return values_[tag]; }

  // glibc adds the base to the addresses of most objects, not of all.
  std::uintptr_t table(std::size_t tag) const {
    const std::uintptr_t value = values_[tag];
    return value != 0 && value < object_.base ? value + object_.base : value;
  }

  bool is_mapped(std::uintptr_t address, std::size_t size) const {
    return LoadedObject::any_contains(object_.mapped, address, size);
  }

  void scan(std::uintptr_t start, std::size_t size) {
    if (start == 0 || start % alignof(ElfW(Rela)) != 0 || !is_mapped(start, size)) return;
    const auto* relocations = reinterpret_cast<const ElfW(Rela)*>(start);
    for (std::size_t i = 0; i < size / sizeof(ElfW(Rela)); ++i) consider(relocations[i]);
  }

  void consider(const ElfW(Rela) & relocation) {
    const std::uint32_t type = ELF64_R_TYPE(relocation.r_info);
    if ((type != kJumpSlot && type != kGlobalData && type != kAbsolute) || relocation.r_addend != 0) return;
    const std::uintptr_t symbol_address = table(DT_SYMTAB) + ELF64_R_SYM(relocation.r_info) * sizeof(ElfW(Sym));
    if (!is_mapped(symbol_address, sizeof(ElfW(Sym)))) return;
    const std::size_t name_offset = reinterpret_cast<const ElfW(Sym)*>(symbol_address)->st_name;
    for (std::size_t function = 0; function < redirections_.size(); ++function) {
      const std::string_view name = redirections_[function].name;
      if (name_offset + name.size() >= number(DT_STRSZ)) continue;
      const char* text = reinterpret_cast<const char*>(table(DT_STRTAB) + name_offset);
      if (std::memcmp(text, name.data(), name.size()) != 0 || text[name.size()] != '\0') continue;
      const std::uintptr_t address = object_.base + relocation.r_offset;
      if (address % sizeof address != 0) return;
      if (!LoadedObject::any_contains(object_.writable, address, sizeof address)) return;
      slots_.push_back({address, static_cast<std::uint8_t>(function), type == kJumpSlot, 0});
      return;
    }
  }

  const LoadedObject& object_;
  const std::vector<Redirection>& redirections_;
  std::array<std::uintptr_t, kNumTags> values_{};
  std::vector<Slot> slots_;
};

// Spans of memory that can be written at present, from /proc/self/maps, in order; empty if it cannot be read.
inline std::vector<Span> read_writable_spans() {
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::string text;
  std::array<char, 16384> chunk;
  for (ssize_t size; (size = read(file, chunk.data(), chunk.size())) > 0;) {
    text.append(chunk.data(), static_cast<std::size_t>(size));
  }
  close(file);
  std::vector<Span> spans;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    unsigned long first = 0, last = 0;
    char rights[5] = "";
    const std::string line = text.substr(start, end - start);
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &first, &last, rights) == 3 && rights[1] == 'w') {
      spans.push_back({first, last});
    }
    start = end + 1;
  }
  return spans;
}

// All slots of the process, redirected or not. Not for several threads at once.
class MallocSlots {
 public:
  // `own`: an address within the object that the wrappers are in; it is passed over, as is who implements the family.
  MallocSlots(std::vector<Redirection> redirections, std::uintptr_t own) : redirections_(std::move(redirections)) {
    passed_over_ = {own, redirections_.front().real, reinterpret_cast<std::uintptr_t>(dlsym(RTLD_DEFAULT, "_exit"))};
  }

  // Let every slot lead to the wrapper. False if the system refuses; then nothing is redirected.
  bool redirect() {
    is_first_ = true;
    has_failed_ = false;
    dl_iterate_phdr(&MallocSlots::on_redirect, this);
    if (has_failed_) {
      restore();
      num_added_ = 0;  // the list may be incomplete
    }
    return !has_failed_;
  }

  // Let every slot lead again to where it led before. False if the system refuses for some of them: these keep leading
  // to the wrapper, which works at any time.
  bool restore() {
    is_first_ = true;
    has_failed_ = false;
    dl_iterate_phdr(&MallocSlots::on_restore, this);
    return !has_failed_;
  }

  std::size_t num_slots() const {
    std::size_t count = 0;
    for (const SlottedObject& object : objects_) count += object.slots.size();
    return count;
  }

 private:
  enum class Direction { kToWrapper, kToOriginal };

  // Nothing may be thrown through the loader.
  template <typename Function>
  int guarded(Function function) {
    try {
      return function();
    } catch (...) {
      has_failed_ = true;
      return 1;
    }
  }

  static int on_redirect(dl_phdr_info* info, std::size_t size, void* data) {
    auto* self = static_cast<MallocSlots*>(data);
    return self->guarded([&] { return self->visit_to_redirect(*info, size); });
  }

  static int on_restore(dl_phdr_info* info, std::size_t size, void* data) {
    auto* self = static_cast<MallocSlots*>(data);
    return self->guarded([&] { return self->visit_to_restore(*info, size); });
  }

  int visit_to_redirect(const dl_phdr_info& info, std::size_t size) {
    if (size < offsetof(dl_phdr_info, dlpi_subs) + sizeof info.dlpi_subs) return fail();
    if (is_first_) {
      is_first_ = false;
      if (is_same_set(info)) return write_all(Direction::kToWrapper);
      objects_.clear();
      writable_ = read_writable_spans();
      if (writable_.empty()) return fail();
      num_added_ = info.dlpi_adds;
      num_removed_ = info.dlpi_subs;
    }
    const LoadedObject object(info);
    if (is_passed_over(object)) return 0;
    add(object);
    return 0;
  }

  void add(const LoadedObject& object) {
    SlottedObject found{object.base, object.headers, {}, object.executable, {}};
    found.slots = SlotFinder(object, redirections_).find();
    if (found.slots.empty()) return;
    const Span pages = object.protected_pages;
    const bool is_below = std::any_of(found.slots.begin(), found.slots.end(),
                                      [&](const Slot& slot) { return pages.contains(slot.address); });
    if (is_below) found.protected_pages = pages;
    const bool is_writable = std::any_of(writable_.begin(), writable_.end(), [&](const Span& span) {
      return span.begin < pages.end && pages.begin < span.end;
    });
    if (!pages.empty() && is_writable) {  // the loader is not done with it: look again next time
      num_added_ = 0;
      return;
    }
    objects_.push_back(std::move(found));
    if (!write(objects_.back(), Direction::kToWrapper)) has_failed_ = true;
  }

  int visit_to_restore(const dl_phdr_info& info, std::size_t) {
    if (is_first_) {
      is_first_ = false;
      if (is_same_set(info)) return write_all(Direction::kToOriginal);
    }
    const auto found = std::find_if(objects_.begin(), objects_.end(), [&](const SlottedObject& object) {
      return object.base == info.dlpi_addr && object.headers == info.dlpi_phdr;
    });
    if (found == objects_.end()) return 0;
    const LoadedObject object(info);  // another one may lie where the old one was
    const bool is_alike = (found->protected_pages.empty() || found->protected_pages == object.protected_pages) &&
                          std::all_of(found->slots.begin(), found->slots.end(), [&](const Slot& slot) {
                            return LoadedObject::any_contains(object.writable, slot.address, sizeof slot.address) &&
                                   (!found->protected_pages.empty() || !object.protected_pages.contains(slot.address));
                          });
    if (is_alike && !write(*found, Direction::kToOriginal)) has_failed_ = true;
    return 0;
  }

  bool is_same_set(const dl_phdr_info& info) const {
    return num_added_ != 0 && info.dlpi_adds == num_added_ && info.dlpi_subs == num_removed_;
  }

  bool is_passed_over(const LoadedObject& object) const {
    if (object.base == getauxval(AT_BASE)) return true;  // the loader itself
    return std::any_of(passed_over_.begin(), passed_over_.end(), [&](std::uintptr_t address) {
      return LoadedObject::any_contains(object.executable, address);
    });
  }

  int fail() {
    has_failed_ = true;
    return 1;
  }

  int write_all(Direction direction) {
    for (SlottedObject& object : objects_) {
      if (!write(object, direction)) has_failed_ = true;
    }
    return 1;
  }

  bool write(SlottedObject& object, Direction direction) {
    const Span pages = object.protected_pages;
    void* const start = reinterpret_cast<void*>(pages.begin);
    const std::size_t size = pages.end - pages.begin;
    if (!pages.empty() && mprotect(start, size, PROT_READ | PROT_WRITE) != 0) return false;
    for (Slot& slot : object.slots) {
      if (direction == Direction::kToWrapper) {
        redirect(object, slot);
      } else {
        restore(slot);
      }
    }
    return pages.empty() || mprotect(start, size, PROT_READ) == 0;
  }

  void redirect(const SlottedObject& object, Slot& slot) {
    const Redirection& redirection = redirections_[slot.function];
    std::atomic_ref<std::uintptr_t> place(*reinterpret_cast<std::uintptr_t*>(slot.address));
    std::uintptr_t value = place.load();
    const bool is_lazy = slot.may_be_lazy && LoadedObject::any_contains(object.executable, value);
    if (value != redirection.real && !is_lazy) return;  // bound to something else, or left over by a failed restore
    if (place.compare_exchange_strong(value, redirection.wrapper)) slot.original = value;
  }

  void restore(Slot& slot) {
    if (slot.original == 0) return;
    std::atomic_ref<std::uintptr_t> place(*reinterpret_cast<std::uintptr_t*>(slot.address));
    std::uintptr_t value = redirections_[slot.function].wrapper;
    place.compare_exchange_strong(value, slot.original);  // whoever wrote something else meanwhile is right
    slot.original = 0;
  }

  std::vector<Redirection> redirections_;
  std::vector<std::uintptr_t> passed_over_;
  std::vector<SlottedObject> objects_;
  std::vector<Span> writable_;
  unsigned long long num_added_ = 0;    // by the loader, when the slots were looked for; 0: look again
  unsigned long long num_removed_ = 0;
  bool is_first_ = true;
  bool has_failed_ = false;
};

}  // namespace lowtide
#endif
