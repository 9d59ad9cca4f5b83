// Types of the rows of a graph. WORD_BITS: of vertices, arcs and numbers of edges. WEIGHT 0, 1, 2:
// int32, int64, float64.
#pragma once

#ifndef WEIGHT
#define WEIGHT 0
#endif
#ifndef WORD_BITS
#define WORD_BITS 32
#endif

typedef long long i64;
#if WORD_BITS == 32
typedef unsigned int word;
#else
typedef unsigned long long word;
#endif
#if WEIGHT == 1
typedef long long weight_type;
#elif WEIGHT == 2
typedef double weight_type;
#else
typedef int weight_type;
#endif
