// Storage types of 16 bits: they hold a number, convert to float to compute with and back to be stored (rounding to even).
#pragma once

#include <cstdint>
#include <cstring>

// nvcc compiles these for kernels too.
#ifdef __CUDACC__
#define D500_BOTH __host__ __device__
#else
#define D500_BOTH
#endif

namespace d500_detail {

D500_BOTH inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

D500_BOTH inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

D500_BOTH inline uint16_t to_half(float value) {
  const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);    // not a number
  if (rest >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);   // rounds to 65536 or more: infinite
  if (rest < 0x38800000u) {                                                // below 2^-14: no leading one is stored
    const float shifted = float_of(rest) + 0.5f;                           // float's own rounding at 2^-24
    return static_cast<uint16_t>(sign | (bits_of(shifted) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13));
}

D500_BOTH inline float from_half(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1fu, fraction = half & 0x3ffu;
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 5.9604644775390625e-8f;  // 2^-24
    return sign ? -value : value;
  }
  return float_of(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112u) << 23) | fraction << 13);
}

D500_BOTH inline uint16_t to_bfloat(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

D500_BOTH inline float from_bfloat(uint16_t bits) { return float_of(static_cast<uint32_t>(bits) << 16); }

}  // namespace d500_detail

// clang's own types are used where they exist: Enzyme differentiates through them, but not through tricks with bits.
#if defined(__clang__) && defined(__FLT16_MANT_DIG__) && !defined(__CUDACC__)
#define D500_NATIVE_HALF 1

// What clang calls for the conversion where the processor has no instruction for it (AVX512_BF16). zig's run-time library
// lacks it; where another library has it, the linker takes either.
extern "C" __attribute__((weak, used, visibility("hidden"))) inline __bf16 __truncsfbf2(float value) {
  const uint16_t bits = d500_detail::to_bfloat(value);
  __bf16 stored;
  std::memcpy(&stored, &bits, sizeof stored);
  return stored;
}
#endif

namespace deep500 {

/// IEEE half precision: 11 bits of precision, up to 65504.
struct float16 {
#ifdef D500_NATIVE_HALF
  _Float16 stored;
  float16() = default;
  float16(float value) : stored(static_cast<_Float16>(value)) {}
  operator float() const { return static_cast<float>(stored); }
#else
  uint16_t stored;
  float16() = default;
  D500_BOTH float16(float value) : stored(d500_detail::to_half(value)) {}
  D500_BOTH operator float() const { return d500_detail::from_half(stored); }
#endif
  D500_BOTH float16 &operator+=(float value) { return *this = float16(static_cast<float>(*this) + value); }
  D500_BOTH float16 &operator-=(float value) { return *this = float16(static_cast<float>(*this) - value); }
  D500_BOTH float16 &operator*=(float value) { return *this = float16(static_cast<float>(*this) * value); }
  D500_BOTH float16 &operator/=(float value) { return *this = float16(static_cast<float>(*this) / value); }
};

/// The upper half of a float: 8 bits of precision, float's range. Processors that convert it themselves (AVX512_BF16) take
/// denormal numbers, below 1.2e-38, for 0.
struct bfloat16 {
#ifdef D500_NATIVE_HALF
  __bf16 stored;
  bfloat16() = default;
  bfloat16(float value) : stored(static_cast<__bf16>(value)) {}
  operator float() const { return static_cast<float>(stored); }
#else
  uint16_t stored;
  bfloat16() = default;
  D500_BOTH bfloat16(float value) : stored(d500_detail::to_bfloat(value)) {}
  D500_BOTH operator float() const { return d500_detail::from_bfloat(stored); }
#endif
  D500_BOTH bfloat16 &operator+=(float value) { return *this = bfloat16(static_cast<float>(*this) + value); }
  D500_BOTH bfloat16 &operator-=(float value) { return *this = bfloat16(static_cast<float>(*this) - value); }
  D500_BOTH bfloat16 &operator*=(float value) { return *this = bfloat16(static_cast<float>(*this) * value); }
  D500_BOTH bfloat16 &operator/=(float value) { return *this = bfloat16(static_cast<float>(*this) / value); }
};

static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2, "storage types have 16 bits");

}  // namespace deep500
