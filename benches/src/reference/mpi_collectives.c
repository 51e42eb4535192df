/* The reference of the rows beside MPI: collectives of an MPI library, timed on request.
 *
 * Usage: mpi_collectives FOLDER. Rank N reads commands from the pipe FOLDER/N, one a line: NAME BYTES TIMES. It does the
 * collective NAME so many times between two barriers, each member with a vector of so many bytes. Rank 0 then prints
 * `ok NANOSECONDS`, for one. A rank ends when its pipe does.
 *
 * Ranks wait in read(2), not in MPI: a call of MPI spins, and would take the processor of the other program. */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* MOST is the length of the longest vector: the compiler gets it with -D. */
enum { UNTOUCHED = 0xEE };

static int rank, count;
static unsigned char *out, *in;

static void fail(const char *what, const char *name)
{
    printf("%s: %s, at rank %d\n", what, name, rank);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void alltoall(int len)
{
    MPI_Alltoall(out, len / count, MPI_BYTE, in, len / count, MPI_BYTE, MPI_COMM_WORLD);
}

static void allreduce(int len)
{
    MPI_Allreduce(MPI_IN_PLACE, in, len / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void allgather(int len)
{
    MPI_Allgather(out, len / count, MPI_BYTE, in, len / count, MPI_BYTE, MPI_COMM_WORLD);
}

static void broadcast(int len)
{
    MPI_Bcast(in, len, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static const struct {
    const char *name;
    void (*run)(int len);
} collectives[] = {
    {"Alltoall", alltoall},
    {"AllreduceSum", allreduce},
    {"Allgather", allgather},
    {"Broadcast", broadcast},
};

/* Does one and compares each byte with what it has to be. Member r sends bytes of r + 1, and sums ones. */
static void check(const char *name, void (*run)(int len), int len)
{
    int sums = run == allreduce;
    float *numbers = (float *)in;
    memset(out, rank + 1, len);
    memset(in, run == broadcast && rank == 0 ? 1 : UNTOUCHED, len);
    for (int i = 0; sums && i < len / 4; i++)
        numbers[i] = 1.0f;
    run(len);
    for (int i = 0; i < len; i++) {
        int sender = run == broadcast ? 0 : i / (len / count);
        if (sums ? numbers[i / 4] != (float)count : in[i] != sender + 1)
            fail("a wrong result", name);
    }
    /* Sums of zeros stay numbers, however many there are. */
    memset(in, 0, len);
}

static double nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static void obey(const char *line)
{
    char name[32];
    int len, times;
    if (sscanf(line, "%31s %d %d", name, &len, &times) != 3 || len < 4 * count || len > MOST || times < 1)
        fail("a bad command", line);
    for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++) {
        if (strcmp(collectives[i].name, name) != 0)
            continue;
        void (*run)(int len) = collectives[i].run;
        check(name, run, len);
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = nanoseconds();
        for (int n = 0; n < times; n++)
            run(len);
        MPI_Barrier(MPI_COMM_WORLD);
        double took = nanoseconds() - begun;
        if (rank == 0) {
            printf("ok %.1f\n", took / times);
            fflush(stdout);
        }
        return;
    }
    fail("no such collective", name);
}

int main(int argc, char **argv)
{
    char path[4096], line[256];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    out = malloc(MOST);
    in = malloc(MOST);
    if (argc != 2 || !out || !in)
        fail("cannot start", argv[0]);
    memset(out, 1, MOST);
    memset(in, 2, MOST);
    snprintf(path, sizeof path, "%s/%d", argv[1], rank);
    FILE *commands = fopen(path, "r");
    if (!commands)
        fail("cannot open", path);
    if (rank == 0) {
        printf("ok 0\n");
        fflush(stdout);
    }
    while (fgets(line, sizeof line, commands))
        obey(line);
    MPI_Finalize();
    return 0;
}
