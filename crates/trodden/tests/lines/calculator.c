// Computes expressions by recursive descent: inlined functions that call each other, a switch, errors that the input does not have.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static const char *at;
static int errors;

static long expression(void);

static void skip(void) {
    while (isspace((unsigned char)*at))
        at++;
}

static int take(char c) {
    skip();
    if (*at != c)
        return 0;
    at++;
    return 1;
}

static long number(void) {
    long value = 0;
    skip();
    if (!isdigit((unsigned char)*at)) {
        errors++;
        at++;
        return 0;
    }
    while (isdigit((unsigned char)*at))
        value = value * 10 + (*at++ - '0');
    return value;
}

static long factor(void) {
    if (take('-'))
        return -factor();
    if (take('(')) {
        long value = expression();
        if (!take(')'))
            errors++;
        return value;
    }
    return number();
}

static long apply(char operation, long a, long b) {
    switch (operation) {
    case '+':
        return a + b;
    case '-':
        return a - b;
    case '*':
        return a * b;
    case '/':
        if (b == 0) {
            errors++;
            return 0;
        }
        return a / b;
    default:
        errors++;
        return 0;
    }
}

static long term(void) {
    long value = factor();
    for (;;) {
        if (take('*'))
            value = apply('*', value, factor());
        else if (take('/'))
            value = apply('/', value, factor());
        else
            return value;
    }
}

static long expression(void) {
    long value = term();
    for (;;) {
        if (take('+'))
            value = apply('+', value, term());
        else if (take('-'))
            value = apply('-', value, term());
        else
            return value;
    }
}

int main(void) {
    const char *inputs[] = {"1 + 2 * 3", "(4 + 5) * -(6 - 7)", "100 / 7 / 2", "1 - 2 - 3 + (4)", "  12*12*12  "};
    for (unsigned i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        at = inputs[i];
        long value = expression();
        skip();
        if (*at)
            errors++;
        printf("%s = %ld\n", inputs[i], value);
    }
    return errors;
}
