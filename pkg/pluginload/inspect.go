// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"os"
	"runtime/debug"
	"slices"
	"strings"
)

// self is the running program, also after a replacement of its file.
const self = "/proc/self/exe"

// candidate is a file that this process may open: a complete Go plugin, built by the same Go for
// the same machine.
type candidate struct {
	file    string
	sum     [sha256.Size]byte
	info    *debug.BuildInfo
	symbols []elf.Symbol // the dynamic ones, in which package plugin searches entry points
}

// inspect reads file without opening it as a plugin. The error is a *refusal.
func inspect(file string) (*candidate, error) {
	content, size, err := openRegular(file)
	if err != nil {
		return nil, err
	}
	defer content.Close() //nolint:errcheck // opened for reading
	binary, err := readELF(content, size)
	if err != nil {
		return nil, err
	}
	info, err := readBuildInfo(content)
	if err != nil {
		return nil, err
	}
	symbols, err := binary.DynamicSymbols()
	if err != nil {
		return nil, refuse(rebuild, "its symbols cannot be read: %v", err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(content, 0, size)); err != nil {
		return nil, unreadable(err)
	}
	return &candidate{file: file, sum: [sha256.Size]byte(sum.Sum(nil)), info: info, symbols: symbols}, nil
}

// openRegular opens a regular file. It checks the type first, as opening a named pipe waits for a
// writer.
func openRegular(file string) (content *os.File, size int64, err error) {
	stat, err := os.Stat(file)
	if err != nil {
		return nil, 0, unreadable(err)
	}
	if !stat.Mode().IsRegular() {
		return nil, 0, refuse("remove it from the directory", "is no regular file but %s", stat.Mode().Type())
	}
	content, err = os.Open(file)
	if err != nil {
		return nil, 0, unreadable(err)
	}
	return content, stat.Size(), nil
}

func unreadable(err error) error {
	var onPath *fs.PathError
	if errors.As(err, &onPath) {
		err = onPath.Err // the line names the file
	}
	return refuse("check the path and its permissions", "cannot be read: %v", err)
}

// readELF reads the headers and checks that the file, of this size, contains all that they
// describe.
func readELF(content io.ReaderAt, size int64) (*elf.File, error) {
	start := make([]byte, min(size, 16))
	if _, err := content.ReadAt(start, 0); err != nil {
		return nil, unreadable(err)
	}
	if !bytes.HasPrefix(start, []byte(elf.ELFMAG)) {
		return nil, refuse("remove it, or "+rebuild, "is no shared library: it begins with %q", start)
	}
	const copyAgain = "copy or build it again"
	binary, err := elf.NewFile(content)
	if err != nil {
		return nil, refuse(copyAgain, "is truncated or damaged, at %d bytes: %v", size, err)
	}
	var end uint64
	for _, segment := range binary.Progs {
		end = max(end, segment.Off+segment.Filesz)
	}
	for _, section := range binary.Sections {
		if section.Type != elf.SHT_NOBITS {
			end = max(end, section.Offset+section.FileSize)
		}
	}
	if end > uint64(size) {
		return nil, refuse(copyAgain, "is truncated: it has %d of at least %d bytes", size, end)
	}

	host, err := elf.Open(self)
	if err != nil {
		return nil, refuse("mount /proc", "this program's own file cannot be read: %v", err)
	}
	defer host.Close()
	if binary.Machine != host.Machine {
		return nil, refuse("build it for this machine", "is built for %v, this program for %v", binary.Machine,
			host.Machine)
	}
	return binary, nil
}

// readBuildInfo reads the build information of the go command, and refuses files that the runtime
// would take for a plugin although they are none.
func readBuildInfo(content io.ReaderAt) (*debug.BuildInfo, error) {
	info, err := buildinfo.Read(content)
	if err != nil {
		return nil, refuse(rebuild, "is no Go plugin: it has no Go build information")
	}
	if mode := setting(info, "-buildmode"); mode != "plugin" {
		return nil, refuse(rebuild, "is no Go plugin: it is built with -buildmode=%s", mode)
	}
	if host := hostInfo(); info.GoVersion != host.GoVersion {
		return nil, refuse("rebuild it with "+host.GoVersion, "is built with %s, this program with %s", info.GoVersion,
			host.GoVersion)
	}
	return info, nil
}

// hostInfo is the build information of this program.
func hostInfo() *debug.BuildInfo {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return &debug.BuildInfo{}
	}
	return info
}

// require refuses a file without the entry point of its kind.
func (c *candidate) require(want target) error {
	if c.exports(want) {
		return nil
	}
	for _, other := range targets() {
		if c.exports(other) {
			return refuse("move it to "+other.belongs, "is a %s: it exports %s, not %s", other.what, other.symbol,
				want.symbol)
		}
	}
	return refuse("export a function of that name from its package main", "does not export %s", want.symbol)
}

func (c *candidate) exports(s target) bool {
	return slices.ContainsFunc(c.symbols, func(symbol elf.Symbol) bool {
		return symbol.Section != elf.SHN_UNDEF && strings.HasSuffix(symbol.Name, "."+s.symbol)
	})
}

// conflictsWith refuses a file that the runtime would report as loaded already, because other is
// open.
func (c *candidate) conflictsWith(other *candidate) error {
	const unnamed = "command-line-arguments" // built from a list of files: the runtime distinguishes these by content
	switch {
	case c.sum == other.sum:
		return refuse("remove one of the two", "is the same file as %q", other.file)
	case c.info.Path == other.info.Path && c.info.Path != unnamed:
		return refuse("give one of them a module path of its own in its go.mod and rebuild it",
			"is built from package %s, as %q is, and Go opens a package only once", c.info.Path, other.file)
	}
	return nil
}

// describe returns the sources of the file.
func (c *candidate) describe() string {
	text := fmt.Sprintf("built from %s with %s", c.info.Path, c.info.GoVersion)
	if sdk := moduleOf(c.info, sdkPackage); sdk != nil {
		text += " and SDK " + version(sdk)
	}
	return text
}
