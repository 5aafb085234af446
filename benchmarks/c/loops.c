/* Bandit algorithms as plain C loops: what simulate() is measured against.
 *
 *     loops ALGORITHM STEPS RUNS SEED
 *
 * plays UCB1, Thompson or EXP3 on five Bernoulli arms, or UCB1 on 100 keys of five such arms
 * (UCB1-keys), and prints, as JSON, steps per second and the mean and standard deviation of the
 * runs' regrets.
 */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ARMS = 5, LAYERS = 256, KEYS = 100, SIGNALS = 10 };

static const double means[ARMS] = {0.1, 0.2, 0.3, 0.4, 0.5};
static const double best_mean = 0.5;

/* Random numbers: xoshiro256+ (Blackman, Vigna 2021), seeded by splitmix64 --------------------- */

typedef struct {
    uint64_t s[4];
} Generator;

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static Generator generator(uint64_t *seed)
{
    Generator g;
    for (int i = 0; i < 4; i++)
        g.s[i] = splitmix64(seed);
    return g;
}

static inline uint64_t bits(Generator *g)
{
    uint64_t *s = g->s, result = s[0] + s[3], shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = s[3] << 45 | s[3] >> 19;
    return result;
}

/* The top 53 bits as a number in [0, 1). */
static inline double unit(uint64_t word)
{
    return (double)(word >> 11) * 0x1p-53;
}

static inline double uniform(Generator *g)
{
    return unit(bits(g));
}

/* Normal draws by the ziggurat (Marsaglia, Tsang 2000): LAYERS regions of equal area under
 * exp(-x²/2), from the base (0), whose width stands for the tail too, up to the peak. */

static const double tail_start = 3.6541528853610088;
static double width[LAYERS + 1], height[LAYERS + 1];

static void build_ziggurat(void)
{
    double base = exp(-0.5 * tail_start * tail_start);
    double area = tail_start * base + sqrt(2.0 * atan(1.0)) * erfc(tail_start / sqrt(2.0));
    width[0] = area / base;
    width[1] = tail_start;
    height[1] = base;
    for (int i = 2; i < LAYERS; i++) {
        height[i] = height[i - 1] + area / width[i - 1];
        width[i] = sqrt(-2.0 * log(height[i]));
    }
    height[LAYERS] = 1.0;
}

static double normal_tail(Generator *g)
{
    double x, y;
    do {
        x = -log(1.0 - uniform(g)) / tail_start;
        y = -log(1.0 - uniform(g));
    } while (2.0 * y < x * x);
    return tail_start + x;
}

static inline double normal(Generator *g)
{
    for (;;) {
        uint64_t word = bits(g);
        /* Bits 3 to 10: below those of the fraction, above the generator's weak ones. */
        int layer = word >> 3 & (LAYERS - 1);
        double fraction = 2.0 * unit(word) - 1.0;
        double x = fraction * width[layer];
        if (fabs(x) < width[layer + 1])
            return x;
        if (layer == 0)
            return copysign(normal_tail(g), x);
        double y = height[layer] + uniform(g) * (height[layer + 1] - height[layer]);
        if (y < exp(-0.5 * x * x))
            return x;
    }
}

/* A Gamma draw of shape >= 1 (Marsaglia, Tsang 2000); Beta(1, 1) priors need no smaller one. */
static inline double gamma_draw(Generator *g, double shape)
{
    double d = shape - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        double x = normal(g), v = 1.0 + c * x;
        if (v <= 0.0)
            continue;
        v = v * v * v;
        double u = 1.0 - uniform(g);
        if (u < 1.0 - 0.0331 * x * x * x * x ||
            log(u) < 0.5 * x * x + d * (1.0 - v + log(v)))
            return d * v;
    }
}

static inline double beta_draw(Generator *g, double a, double b)
{
    double x = gamma_draw(g, a), y = gamma_draw(g, b);
    return x / (x + y);
}

/* The algorithms: each plays a run and returns its regret -------------------------------------- */

static inline double click(Generator *world, int arm)
{
    return uniform(world) < means[arm] ? 1.0 : 0.0;
}

static double play_ucb1(long steps, Generator rng, Generator world)
{
    double plays[ARMS] = {0.0}, rewards[ARMS] = {0.0}, regret = 0.0;
    for (long t = 1; t <= steps; t++) {
        double confidence = sqrt(2.0 * log((double)t)), best = -INFINITY, ties = 0.0;
        int leader = 0;
        for (int arm = 0; arm < ARMS; arm++) {
            double score = INFINITY;
            if (plays[arm] > 0.0)
                score = rewards[arm] / plays[arm] + confidence / sqrt(plays[arm]);
            if (score > best) {
                best = score;
                leader = arm;
                ties = 1.0;
            } else if (score == best) {
                ties += 1.0;
                if (uniform(&rng) * ties < 1.0)
                    leader = arm;
            }
        }
        rewards[leader] += click(&world, leader);
        plays[leader] += 1.0;
        regret += best_mean - means[leader];
    }
    return regret;
}

/* UCB1 for each of many keys that arrive by Zipf's law, with a context that nobody reads. */
static double play_ucb1_keys(long steps, Generator rng, Generator world)
{
    static double traffic[KEYS], plays[KEYS][ARMS], rewards[KEYS][ARMS], rounds[KEYS];
    double context[SIGNALS], total = 0.0, regret = 0.0, read = 0.0;
    memset(plays, 0, sizeof plays);
    memset(rewards, 0, sizeof rewards);
    memset(rounds, 0, sizeof rounds);
    for (int key = 0; key < KEYS; key++)
        traffic[key] = total += 1.0 / (key + 1);
    for (long t = 1; t <= steps; t++) {
        double point = uniform(&world) * total;
        int low = 0, high = KEYS - 1;
        while (low < high) {
            int middle = (low + high) / 2;
            if (traffic[middle] > point)
                high = middle;
            else
                low = middle + 1;
        }
        for (int i = 0; i < SIGNALS; i++)
            context[i] = 0.5 * uniform(&world);
        read += context[t % SIGNALS];
        double confidence = sqrt(2.0 * log(rounds[low] + 1.0)), best = -INFINITY, ties = 0.0;
        int leader = 0;
        for (int arm = 0; arm < ARMS; arm++) {
            double score = INFINITY;
            if (plays[low][arm] > 0.0)
                score = rewards[low][arm] / plays[low][arm] + confidence / sqrt(plays[low][arm]);
            if (score > best) {
                best = score;
                leader = arm;
                ties = 1.0;
            } else if (score == best) {
                ties += 1.0;
                if (uniform(&rng) * ties < 1.0)
                    leader = arm;
            }
        }
        rewards[low][leader] += click(&world, leader);
        plays[low][leader] += 1.0;
        rounds[low] += 1.0;
        regret += best_mean - means[leader];
    }
    /* The sum of the contexts is never negative; the compiler must not know. */
    return read < 0.0 ? 0.0 : regret;
}

static double play_thompson(long steps, Generator rng, Generator world)
{
    double successes[ARMS] = {0.0}, failures[ARMS] = {0.0}, regret = 0.0;
    for (long t = 1; t <= steps; t++) {
        double best = -1.0;
        int leader = 0;
        for (int arm = 0; arm < ARMS; arm++) {
            double draw = beta_draw(&rng, 1.0 + successes[arm], 1.0 + failures[arm]);
            if (draw > best) {
                best = draw;
                leader = arm;
            }
        }
        double reward = click(&world, leader);
        successes[leader] += reward;
        failures[leader] += 1.0 - reward;
        regret += best_mean - means[leader];
    }
    return regret;
}

static double play_exp3(long steps, Generator rng, Generator world)
{
    const double gamma = 0.1;
    double logs[ARMS] = {0.0}, weights[ARMS], base = 0.0, regret = 0.0;
    for (int arm = 0; arm < ARMS; arm++)
        weights[arm] = 1.0;
    for (long t = 1; t <= steps; t++) {
        double total = 0.0;
        for (int arm = 0; arm < ARMS; arm++)
            total += weights[arm];
        double u = uniform(&rng);
        int chosen;
        if (u < gamma) {
            chosen = (int)(u / gamma * ARMS);
        } else {
            double left = (u - gamma) / (1.0 - gamma) * total;
            for (chosen = 0; chosen < ARMS - 1; chosen++) {
                left -= weights[chosen];
                if (left < 0.0)
                    break;
            }
        }
        double probability = (1.0 - gamma) * weights[chosen] / total + gamma / ARMS;
        logs[chosen] += gamma * click(&world, chosen) / (probability * ARMS);
        weights[chosen] = exp(logs[chosen] - base);
        if (logs[chosen] - base > 200.0) {
            base = logs[chosen];
            for (int arm = 0; arm < ARMS; arm++)
                weights[arm] = exp(logs[arm] - base);
        }
        regret += best_mean - means[chosen];
    }
    return regret;
}

/* The program ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    double (*play)(long, Generator, Generator);
} algorithms[] = {{"UCB1", play_ucb1},
                {"UCB1-keys", play_ucb1_keys},
                {"Thompson", play_thompson},
                {"EXP3", play_exp3}};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int count, char **arguments)
{
    long steps = count == 5 ? atol(arguments[2]) : 0, runs = count == 5 ? atol(arguments[3]) : 0;
    if (steps < 1 || runs < 1) {
        fprintf(stderr, "usage: loops UCB1|UCB1-keys|Thompson|EXP3 STEPS RUNS SEED\n");
        return 2;
    }
    uint64_t seed = strtoull(arguments[4], NULL, 10);
    build_ziggurat();
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++) {
        if (strcmp(arguments[1], algorithms[i].name) != 0)
            continue;
        double mean = 0.0, squares = 0.0, start = seconds();
        for (long run = 1; run <= runs; run++) {
            Generator rng = generator(&seed), world = generator(&seed);
            double regret = algorithms[i].play(steps, rng, world), off = regret - mean;
            mean += off / (double)run;
            squares += off * (regret - mean);
        }
        double elapsed = seconds() - start;
        printf("{\"steps_per_second\": %.6g, \"regret\": %.17g, \"regret_sd\": %.17g}\n",
               (double)steps * (double)runs / elapsed, mean,
               runs > 1 ? sqrt(squares / (double)(runs - 1)) : 0.0);
        return 0;
    }
    fprintf(stderr, "%s: there are UCB1, UCB1-keys, Thompson and EXP3\n", arguments[1]);
    return 2;
}
