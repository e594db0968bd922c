//! Tables of clang's options, as far as [`super::arguments`] needs them.
#![cfg_attr(rustfmt, rustfmt::skip)]

/// Options whose value is the next word.
pub const WITH_VALUE: &[&str] = &[
    "-o", "--output", "-x", "--language", "-I", "-L", "-l", "-D", "-U", "-A", "-F", "-B", "-T", "-u", "-z", "-e", "-G", "-V", "-b",
    "-h", "-include", "--include", "-imacros", "--imacros", "-isystem", "-isystem-after", "-iquote", "-idirafter", "-isysroot",
    "-iprefix", "-iwithprefix", "-iwithprefixbefore", "-iwithsysroot", "-iframework", "-iframeworkwithsysroot", "-ivfsoverlay",
    "-include-pch", "-cxx-isystem", "-c-isystem", "-objc-isystem", "-objcxx-isystem", "-MF", "-MT", "-MQ", "-MJ", "-Xclang",
    "-Xlinker", "--for-linker", "-Xassembler", "-Xpreprocessor", "-Xanalyzer", "-Xopenmp-target", "-Xcuda-ptxas",
    "-Xcuda-fatbinary", "-Xarch_host", "-Xarch_device", "-mllvm", "-mmlir", "-target", "--target", "-arch", "--param", "--sysroot",
    "-aux-info", "-dumpdir", "-dumpbase", "-dumpbase-ext", "-rpath", "-framework", "-working-directory", "-resource-dir",
    "-serialize-diagnostics", "--serialize-diagnostics", "--config", "-gcc-toolchain", "-ccc-gcc-name", "-ccc-install-dir",
    "-fmodule-name", "-current_version", "-compatibility_version", "-install_name", "-undefined", "-Ttext", "-Tdata", "-Tbss",
    "-stdlib++-isystem", "--prefix", "--entry", "--define-macro", "--undefine-macro", "--include-directory", "--library-directory",
    "--std", "-mthread-model", "-fplugin-arg", "-plugin-arg",
];

/// Options after which no machine code is made of anything.
pub const NOTHING_MADE: &[&str] = &[
    "-###", "--version", "-dumpversion", "-dumpmachine", "-dumpspecs", "--help", "-help", "--help-hidden", "-E", "--preprocess",
    "-M", "--dependencies", "-MM", "--user-dependencies", "-fsyntax-only", "--analyze", "-emit-ast", "-emit-llvm", "--precompile",
    "-extract-api", "-verify-pch", "-module-file-info", "-rewrite-objc", "-fdriver-only", "-cc1", "-cc1as", "-cc1gen-reproducer",
    "--emit-static-lib", "-emit-interface-stubs", "--migrate",
];

/// Beginnings of options on which the machine code depends beyond the intermediate code.
pub const CODEGEN_PREFIXES: &[&str] = &[
    "-O", "-mcmodel", "-march=", "-mcpu=", "-mtune=", "-msse", "-mno-sse", "-mavx", "-mno-avx", "-mrelax", "-mno-relax",
    "-mtls-dialect", "-mlarge-data-threshold", "-mharden", "-mretpoline", "-mindirect", "-mfunction-return", "-ftls-model",
    "-fbasic-block-sections", "-fintegrated-as", "-fno-integrated-as", "-faddrsig", "-fno-addrsig", "-fsplit-stack",
    "-fstack-size-section", "-ffp-contract", "-fno-plt", "-femulated-tls", "-fno-emulated-tls", "-fzero-initialized",
    "-fno-zero-initialized",
];

/// Options that are such as they stand.
pub const CODEGEN_EXACT: &[&str] = &[
    "-fpic", "-fPIC", "-fpie", "-fPIE", "-fno-pic", "-fno-PIC", "-fno-pie", "-fno-PIE", "-static-pie", "-ffunction-sections",
    "-fno-function-sections", "-fdata-sections", "-fno-data-sections", "-funique-section-names", "-fno-unique-section-names",
    "-m64",
];
