// Types of the values of rasters, by the names that the host passes with -D, and unsigned words of
// as many bits.
#pragma once

typedef signed char Int8;
typedef unsigned char UInt8;
typedef short Int16;
typedef unsigned short UInt16;
typedef int Int32;
typedef unsigned int UInt32;
typedef long long Int64;
typedef unsigned long long UInt64;
typedef float Float32;
typedef double Float64;

template <int BITS> struct Unsigned { typedef UInt32 Type; };
template <> struct Unsigned<8> { typedef UInt8 Type; };
template <> struct Unsigned<16> { typedef UInt16 Type; };
template <> struct Unsigned<64> { typedef UInt64 Type; };
