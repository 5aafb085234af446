/* A decision over features as a plain C loop: what the compiled loop of LaplaceEC is measured
 * against.
 *
 *     features DIM OFFERED ROUNDS SEED
 *
 * draws parameters from a Gaussian kept by its square root, chooses the offered arm of the
 * largest product of two logistic functions over DIM/2 features each, and takes in a click by a
 * Laplace step, ROUNDS times; prints, as JSON, microseconds of processor time per round.
 */

#define main loops_main
#include "loops.c"
#undef main

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* Four sums, so that an addition need not wait for the one before. */
static double dot(const double *x, const double *y, int n)
{
    double a = 0.0, b = 0.0, c = 0.0, d = 0.0;
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        a += x[i] * y[i];
        b += x[i + 1] * y[i + 1];
        c += x[i + 2] * y[i + 2];
        d += x[i + 3] * y[i + 3];
    }
    for (; i < n; i++)
        a += x[i] * y[i];
    return (a + b) + (c + d);
}

static double *numbers(long count)
{
    double *found = calloc((size_t)count, sizeof(double));
    if (!found)
        exit(1);
    return found;
}

int main(int count, char **arguments)
{
    int dim = count == 5 ? atoi(arguments[1]) : 0, offered = count == 5 ? atoi(arguments[2]) : 0;
    long rounds = count == 5 ? atol(arguments[3]) : 0;
    if (dim < 2 || dim % 2 || offered < 1 || rounds < 1) {
        fprintf(stderr, "usage: features DIM OFFERED ROUNDS SEED\n");
        return 2;
    }
    uint64_t seed = strtoull(arguments[4], NULL, 10);
    Generator g = generator(&seed);
    build_ziggurat();
    int half = dim / 2, pool = 2 * offered;
    double *features = numbers((long)pool * dim), *root = numbers((long)dim * dim);
    double *mean = numbers(dim), *theta = numbers(dim), *z = numbers(dim), *h = numbers(dim);
    double *v = numbers(dim), sum = 0.0;
    for (long i = 0; i < (long)pool * dim; i++)
        features[i] = normal(&g) / sqrt(dim);
    for (int i = 0; i < dim; i++)
        root[i * dim + i] = 1.0;
    clock_t start = clock();
    for (long t = 0; t < rounds; t++) {
        const double *offer = features + (t * 7 % (pool - offered + 1)) * dim;
        for (int i = 0; i < dim; i++)
            z[i] = normal(&g);
        for (int i = 0; i < dim; i++)
            theta[i] = mean[i] + dot(root + i * dim, z, dim);
        double best = INFINITY, bar = -INFINITY;
        const double *leader = offer;
        for (int k = 0; k < offered; k++) {
            const double *row = offer + k * dim;
            double a = dot(row, theta, half);
            if (a <= bar)
                continue;
            double b = dot(row + half, theta + half, half);
            if (b <= bar)
                continue;
            double p = exp(-a), q = exp(-b), odds = p + q + p * q;
            if (odds < best) {
                best = odds;
                leader = row;
                bar = -log(odds);
            }
        }
        double reward = uniform(&g) < 0.25 ? 1.0 : 0.0;
        double p = sigmoid(dot(leader, mean, half)), e = sigmoid(dot(leader + half, mean + half, half));
        double f = p * e, logit = log(f / (1.0 - f)), s = 0.0, at = logit;
        for (int i = 0; i < dim; i++) {
            h[i] = leader[i] * (i < half ? 1.0 - p : 1.0 - e) / (1.0 - f);
            v[i] = 0.0;
        }
        for (int i = 0; i < dim; i++)
            for (int j = 0; j < dim; j++)
                v[j] += h[i] * root[i * dim + j];
        s = dot(v, v, dim);
        for (int n = 0; n < 60; n++) {
            double chance = sigmoid(at);
            double step = (at - logit - s * (reward - chance)) / (1.0 + s * chance * (1.0 - chance));
            at -= step;
            if (fabs(step) < 1e-9)
                break;
        }
        double chance = sigmoid(at), c = chance * (1.0 - chance), r = sqrt(1.0 + c * s);
        double beta = c / (r * (1.0 + r));
        for (int i = 0; i < dim; i++) {
            double along = dot(root + i * dim, v, dim);
            mean[i] += (reward - chance) * along;
            for (int j = 0; j < dim; j++)
                root[i * dim + j] -= beta * along * v[j];
        }
        sum += mean[0];
    }
    double elapsed = (double)(clock() - start) / CLOCKS_PER_SEC;
    printf("{\"microseconds\": %.6g, \"sum\": %.6g}\n", 1e6 * elapsed / (double)rounds, sum);
    return 0;
}
