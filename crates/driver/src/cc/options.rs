//! Tables of the clang options that [`super::arguments`] must recognise.
#![cfg_attr(rustfmt, rustfmt::skip)]

/// Options whose value is the next argument.
pub const OPTIONS_WITH_VALUE: &[&str] = &[
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

/// Options that make clang generate no machine code.
pub const OPTIONS_WITHOUT_MACHINE_CODE: &[&str] = &[
    "-###", "--version", "-dumpversion", "-dumpmachine", "-dumpspecs", "--help", "-help", "--help-hidden", "-E", "--preprocess",
    "-M", "--dependencies", "-MM", "--user-dependencies", "-fsyntax-only", "--analyze", "-emit-ast", "-emit-llvm", "--precompile",
    "-extract-api", "-verify-pch", "-module-file-info", "-rewrite-objc", "-fdriver-only", "-cc1", "-cc1as", "-cc1gen-reproducer",
    "--emit-static-lib", "-emit-interface-stubs", "--migrate",
];
