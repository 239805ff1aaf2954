/* The MinGW image of tests/image.rs: COFF symbols and DWARF with an inlined function. Built by
   x86_64-w64-mingw32-gcc -O1 -gdwarf-4 -fno-ident -ffreestanding -fno-asynchronous-unwind-tables
     -fdebug-prefix-map=$PWD=. -nostdlib -Wl,-e,Main -Wl,--no-insert-timestamp -o dwarf.exe dwarf.c */

volatile int counter;

__attribute__((noinline)) static int leaf(int value)
{
    counter += value;
    return counter;
}

static inline __attribute__((always_inline)) int inlined(int value)
{
    counter = value;
    return leaf(value * 2);
}

int Main(void)
{
    int sum = inlined(3);
    return sum + leaf(4);
}
