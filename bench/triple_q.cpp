// Triple-Q with the "practical" preset in C++, twice, as a yardstick for the compiled Python kernel:
// `plain` is what one would write down first, `tuned` uses every trick we know. One constraint, compile-time in `tuned`.
// Both return the thread CPU seconds of the episode loop and write the mean reward and utility to out[2].

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace {

using Word = std::uint64_t;

struct Problem {
    long H, S, A, N, K, n;              // n: episodes to play of a run of K
    const double *P, *r, *g, *mu, *rho;  // [H,S,A,S], [H,S,A], [N,H,S,A], [S], [N], unit scale
    const double* fresh;                 // [H,S,A]: H - h, or minus infinity where the action does not exist
};

struct Params {
    double frame, eta, chi, keep, lift, eps_high, margin, window;
};

double cpu_seconds() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

double lift_of(const Params& p, double K, double k) {
    return p.lift * (std::sqrt(k / K) - std::sqrt((k - p.frame) / K));
}

double queue_after(const Params& p, double K, double k, double queue, double debt, double rho, double mean) {
    const double horizon = std::min(p.window, std::max(K - k, p.frame));
    const double eps = std::clamp((debt + p.margin) / horizon, -p.eps_high, p.eps_high);
    return std::max(queue + rho + eps - mean, 0.0);
}

}  // namespace

extern "C" double plain(const Problem* problem, const Params* params, Word seed, double* out) {
    const auto [H, S, A, N, K, n, P, r, g, mu, rho, fresh] = *problem;
    const Params p = *params;
    std::mt19937_64 engine(seed);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    const long cells = H * S * A;
    std::vector<double> Q(cells), C(N * cells), visits(cells), queue(N), debt(N), used(N), weight(N), earned(1 + N);
    for (long j = 0; j < cells; j++) {
        Q[j] = fresh[j];
        for (long m = 0; m < N; m++) C[m * cells + j] = H - j / (S * A);
    }
    auto greedy = [&](long h, long s) {
        long best = 0;
        double top = -std::numeric_limits<double>::infinity();
        for (long a = 0; a < A; a++) {
            const long j = (h * S + s) * A + a;
            double value = Q[j];
            for (long m = 0; m < N; m++) value += weight[m] * C[m * cells + j];
            if (value > top) top = value, best = a;
        }
        return best;
    };
    auto draw = [&](const double* row) {
        const double u = uniform(engine);
        long s = 0;
        for (double total = row[0]; u >= total && s < S - 1;) total += row[++s];
        return s;
    };
    const double begin = cpu_seconds();
    for (long k = 1; k <= n; k++) {
        long s = draw(mu), a = greedy(0, s);
        for (long h = 0; h < H; h++) {
            const long j = (h * S + s) * A + a;
            const bool last = h == H - 1;
            const long s_next = last ? s : draw(P + j * S);
            const long a_next = last ? 0 : greedy(h + 1, s_next);
            const long j_next = ((h + 1) * S + s_next) * A + a_next;
            const double rate = (p.chi + 1) / (p.chi + ++visits[j]);
            Q[j] += rate * (r[j] + (last ? 0.0 : Q[j_next]) - Q[j]);
            earned[0] += r[j];
            for (long m = 0; m < N; m++) {
                double* c = &C[m * cells];
                const double utility = g[m * cells + j];
                c[j] += rate * (utility + (last ? 0.0 : c[j_next]) - c[j]);
                used[m] += utility;
            }
            s = s_next, a = a_next;
        }
        if (k % static_cast<long>(p.frame) != 0) continue;
        for (long m = 0; m < N; m++) {
            debt[m] += p.frame * rho[m] - used[m];
            queue[m] = queue_after(p, K, k, queue[m], debt[m], rho[m], used[m] / p.frame);
            weight[m] = queue[m] / p.eta;
            earned[1 + m] += used[m];
            used[m] = 0;
        }
        const double lift = lift_of(p, K, k);
        for (long j = 0; j < cells; j++) {
            const double room = H - j / (S * A);
            visits[j] *= p.keep;
            Q[j] = std::min(Q[j] + lift, room);
            for (long m = 0; m < N; m++) C[m * cells + j] = std::min(C[m * cells + j] + lift, room);
        }
    }
    const double seconds = cpu_seconds() - begin;
    for (long m = 0; m < N; m++) earned[1 + m] += used[m];
    for (long m = 0; m <= N; m++) out[m] = earned[m] / n;
    return seconds;
}

namespace {

struct Xoshiro {
    Word s[4];
    static Word rotated(Word x, int k) { return (x << k) | (x >> (64 - k)); }
    Word next() {
        const Word bits = rotated(s[0] + s[3], 23) + s[0], t = s[1] << 17;
        s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3], s[2] ^= t;
        s[3] = rotated(s[3], 45);
        return bits;
    }
};

// Alias entry: threshold in the high 32 bits, then 16 bits of alias state, then 16 bits of own state.
std::vector<Word> alias_row(const std::vector<std::pair<double, Word>>& entries, long width) {
    const long n = entries.size();
    std::vector<double> chance(n);
    std::vector<long> alias(n), small, large;
    for (long i = 0; i < n; i++) {
        chance[i] = entries[i].first * n, alias[i] = i;
        (chance[i] < 1 ? small : large).push_back(i);
    }
    while (!small.empty() && !large.empty()) {
        const long poor = small.back(), rich = large.back();
        small.pop_back();
        alias[poor] = rich;
        chance[rich] -= 1 - chance[poor];
        if (chance[rich] < 1) large.pop_back(), small.push_back(rich);
    }
    std::vector<Word> row(width);
    for (long i = 0; i < n; i++) {
        const Word threshold = alias[i] == i ? 0xffffffffu : static_cast<Word>(chance[i] * 4294967295.0);
        row[i] = threshold << 32 | entries[alias[i]].second << 16 | entries[i].second;
    }
    return row;
}

struct Rows {
    std::vector<Word> entries;
    std::vector<std::uint32_t> width;
    long stride = 1;
};

Rows alias_rows(const double* P, long rows, long S) {
    Rows table;
    std::vector<std::vector<std::pair<double, Word>>> all(rows);
    for (long j = 0; j < rows; j++) {
        for (long s = 0; s < S; s++)
            if (P[j * S + s] > 0) all[j].push_back({P[j * S + s], static_cast<Word>(s)});
        table.stride = std::max<long>(table.stride, all[j].size());
    }
    for (const auto& entries : all) {
        const auto row = alias_row(entries, table.stride);
        table.entries.insert(table.entries.end(), row.begin(), row.end());
        table.width.push_back(entries.size());
    }
    return table;
}

template <int N>
double tuned_n(const Problem& problem, const Params& p, const Word* seed, double* out) {
    const auto [H, S, A, unused, K, n, P, r, g, mu, rho, fresh] = problem;
    struct Cell {
        double value[N + 1], signal[N + 1], visits;
    };
    const long cells = H * S * A;
    std::vector<Cell> table((H + 1) * S * A);
    std::vector<std::uint32_t> best((H + 1) * S);
    std::vector<double> second((H + 1) * S);
    double weight[N + 1] = {1}, queue[N + 1] = {}, debt[N + 1] = {}, total[N + 1] = {}, earned[N + 1] = {};
    for (long j = 0; j < cells; j++) {
        Cell& c = table[j];
        for (int m = 0; m <= N; m++) {
            c.value[m] = m ? H - j / (S * A) : fresh[j];
            c.signal[m] = m ? g[(m - 1) * cells + j] : r[j];
        }
    }
    const Rows rows = alias_rows(P, (H - 1) * S * A, S), start = alias_rows(mu, 1, S);
    Xoshiro rng;
    std::copy(seed, seed + 4, rng.s);
    auto pick = [&](const Word* row, Word width) -> std::uint32_t {
        if (width == 1) return row[0] & 0xffff;
        const Word u = rng.next(), e = row[(u >> 32) * width >> 32];
        return ((u & 0xffffffff) < (e >> 32) ? e : e >> 16) & 0xffff;
    };
    auto search = [&](std::uint32_t i) {
        const Cell* row = &table[i * A];
        std::uint32_t top_a = 0;
        double top = -std::numeric_limits<double>::infinity(), runner_up = top;
        for (std::uint32_t a = 0; a < A; a++) {
            double value = 0;
            for (int m = 0; m <= N; m++) value += weight[m] * row[a].value[m];
            runner_up = std::max(runner_up, std::min(value, top));
            top_a = value > top ? a : top_a;
            top = std::max(top, value);
        }
        best[i] = i * A + top_a, second[i] = runner_up;
    };
    for (long i = 0; i < H * S; i++) search(i);
    for (long i = H * S; i < (H + 1) * S; i++) best[i] = i * A;
    const long frame = p.frame;
    long left = frame;
    const double begin = cpu_seconds();
    for (long k = 1; k <= n; k++) {
        std::uint32_t i = pick(start.entries.data(), start.width[0]), j = best[i], base = S;
        for (long h = 0; h < H; h++, base += S) {
            const std::uint32_t s_next = h + 1 < H ? pick(&rows.entries[j * rows.stride], rows.width[j]) : 0;
            const std::uint32_t i_next = base + s_next, j_next = best[i_next];
            Cell& c = table[j];
            const Cell& d = table[j_next];
            const double rate = (p.chi + 1) / (p.chi + ++c.visits);
            double value = 0;
            for (int m = 0; m <= N; m++) {
                c.value[m] += rate * (c.signal[m] + d.value[m] - c.value[m]);
                value += weight[m] * c.value[m];
                total[m] += c.signal[m];
            }
            if (value < second[i]) search(i);
            i = i_next, j = j_next;
        }
        if (--left) continue;
        left = frame;
        for (int m = 1; m <= N; m++) {
            debt[m] += frame * rho[m - 1] - total[m];
            queue[m] = queue_after(p, K, k, queue[m], debt[m], rho[m - 1], total[m] / frame);
            weight[m] = queue[m] / p.eta;
        }
        for (int m = 0; m <= N; m++) earned[m] += total[m], total[m] = 0;
        const double lift = lift_of(p, K, k);
        for (long h = 0, q = 0; h < H; h++)
            for (long end = q + S * A; q < end; q++) {
                Cell& c = table[q];
                c.visits *= p.keep;
                for (int m = 0; m <= N; m++) c.value[m] = std::min<double>(c.value[m] + lift, H - h);
            }
        for (long q = 0; q < H * S; q++) search(q);
    }
    const double seconds = cpu_seconds() - begin;
    for (int m = 0; m <= N; m++) out[m] = (earned[m] + total[m]) / n;
    return seconds;
}

}  // namespace

extern "C" double tuned(const Problem* problem, const Params* params, const Word* seed, double* out) {
    return tuned_n<1>(*problem, *params, seed, out);
}
