// Counts words of a text in a hash table: small functions that the optimiser inlines, early returns, a table that grows.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    char *word;
    long count;
    struct entry *next;
};

static struct entry **table;
static size_t buckets, entries;

static unsigned hash(const char *s) {
    unsigned h = 2166136261u;
    while (*s) {
        h ^= (unsigned char)*s++;
        h *= 16777619u;
    }
    return h;
}

static void *must(void *memory) {
    if (memory == NULL) {
        fprintf(stderr, "no memory\n");
        abort();
    }
    return memory;
}

static struct entry *find(const char *word) {
    for (struct entry *e = table[hash(word) % buckets]; e; e = e->next)
        if (strcmp(e->word, word) == 0)
            return e;
    return NULL;
}

static void grow(void) {
    size_t before = buckets;
    struct entry **old = table;
    buckets = before ? before * 2 : 8;
    table = must(calloc(buckets, sizeof *table));
    for (size_t i = 0; i < before; i++) {
        struct entry *e = old[i];
        while (e) {
            struct entry *next = e->next;
            unsigned at = hash(e->word) % buckets;
            e->next = table[at];
            table[at] = e;
            e = next;
        }
    }
    free(old);
}

static void add(const char *word) {
    struct entry *e = find(word);
    if (e) {
        e->count++;
        return;
    }
    if (entries >= buckets)
        grow();
    e = must(malloc(sizeof *e));
    e->word = must(strdup(word));
    e->count = 1;
    unsigned at = hash(word) % buckets;
    e->next = table[at];
    table[at] = e;
    entries++;
}

static int is_letter(int c) {
    if (c >= 'a' && c <= 'z')
        return 1;
    return c == '\'';
}

static int lower(int c) {
    if (c >= 'A' && c <= 'Z')
        return c + ('a' - 'A');
    return c;
}

int main(int argc, char **argv) {
    const char *text = "The quick brown fox, the lazy dog; the end isn't near. Foxes and dogs and the rest of them: a b c d e f g h i j k";
    char word[32];
    size_t length = 0;
    if (argc > 1)
        text = argv[1];
    grow();
    for (const char *c = text;; c++) {
        int letter = lower(*c);
        if (is_letter(letter)) {
            if (length + 1 < sizeof word)
                word[length++] = (char)letter;
            continue;
        }
        if (length > 0) {
            word[length] = 0;
            add(word);
            length = 0;
        }
        if (*c == 0)
            break;
    }
    for (size_t i = 0; i < buckets; i++)
        for (struct entry *e = table[i]; e; e = e->next)
            if (e->count > 1)
                printf("%s %ld\n", e->word, e->count);
    printf("%zu words\n", entries);
    return 0;
}
