// Timing of the thread pool, for benchmarks/roofline.py.
#pragma once

#include <vector>

namespace octavo {

// Seconds of one ThreadPool::barrier with nothing between two of them, the mean over `rounds`
// barriers inside a job; one number a repeat.
std::vector<double> measure_barrier(int threads, int rounds, int repeats);

// Seconds of one empty ThreadPool::run: hand the job out, run nothing, gather.
std::vector<double> measure_job(int threads, int rounds, int repeats);

// Seconds of one region of one empty item a thread: claim it, close the region, see it closed.
std::vector<double> measure_region(int threads, int rounds, int repeats);

}  // namespace octavo
