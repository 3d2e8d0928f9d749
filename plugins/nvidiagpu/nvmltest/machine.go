// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nvmltest builds fakes of NVIDIA's management library, one for each machine that a
// test imagines.
package nvmltest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/mig"
)

// Machine is a machine with GPUs.
type Machine struct {
	// Ancestor is the innermost part that joins two GPUs over PCIe, as NVML's number, by their
	// numbers.
	Ancestor [][]int
	// NVLink says which GPUs NVLink joins.
	NVLink [][]bool
	// Init is what initialising the library returns: 0 is success.
	Init int
	// OldDriver lacks the functions that say how GPUs are joined, what is wrong with them, and how
	// they are partitioned.
	OldDriver bool
	// Model is that of all GPUs. The zero value is one that cannot be partitioned.
	Model mig.Model
}

// Memory is the memory of each GPU that programs can use, and Reserved what the driver reserves for
// itself next to it, both in bytes.
const (
	Memory   = 80 << 30
	Reserved = 480 << 20
)

// UUID returns the UUID of the GPU of that number.
func UUID(number int) string { return fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", number) }

// bus is the PCI bus of the first GPU; the others follow.
const bus = 0x10

// Address returns the PCI address of the GPU of that number, as Linux has it.
func Address(number int) string { return fmt.Sprintf("0000:%02x:00.0", bus+number) }

// Matrix returns the n×n matrix of what a function says about each pair.
func Matrix[T any](n int, of func(i, j int) T) [][]T {
	rows := make([][]T, n)
	for i := range rows {
		for j := range n {
			rows[i] = append(rows[i], of(i, j))
		}
	}
	return rows
}

// Library is a fake library that was built.
type Library struct {
	// Path is its file.
	Path         string
	lost, events string
	health, mig  string
	usage        string
	model        mig.Model
}

// Health is what the GPUs of a machine say of themselves.
type Health struct {
	// RowRemapFailed and PagesPending are what they say of their memory.
	RowRemapFailed, PagesPending bool
	// RecoveryAction is NVML's number.
	RecoveryAction int
}

// Build builds the fake library of a machine with gcc and the header of github.com/NVIDIA/go-nvml.
// It lasts as long as the test.
func Build(t *testing.T, m Machine) Library {
	t.Helper()
	l, err := BuildIn(t.Context(), t.TempDir(), m)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// BuildIn builds as Build does, in a directory.
func BuildIn(ctx context.Context, dir string, m Machine) (Library, error) {
	l := Library{
		Path:   filepath.Join(dir, "libnvidia-ml.so.1"),
		lost:   filepath.Join(dir, "lost"),
		events: filepath.Join(dir, "events"),
		health: filepath.Join(dir, "health"),
		mig:    filepath.Join(dir, "mig"),
		usage:  filepath.Join(dir, "usage"),
		model:  m.Model,
	}
	header, err := includeDir(ctx)
	if err != nil {
		return l, err
	}
	source, err := sourceDir(ctx)
	if err != nil {
		return l, err
	}
	if err := os.WriteFile(filepath.Join(dir, "machine.h"), []byte(m.header(l)), 0o644); err != nil {
		return l, err
	}
	gcc := exec.CommandContext(ctx, "gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-I", dir, "-I", header,
		"-I", source, "-o", l.Path, filepath.Join(source, "fake.c"), filepath.Join(source, "mig.c"),
		filepath.Join(source, "usage.c"))
	if out, err := gcc.CombinedOutput(); err != nil {
		return l, fmt.Errorf("gcc: %w\n%s", err, out)
	}
	return l, nil
}

// Lose makes the GPUs of those numbers stop answering, and all others answer.
func (l Library) Lose(t *testing.T, numbers ...int) {
	t.Helper()
	state := []byte(strings.Repeat(".", 64))
	for _, number := range numbers {
		state[number] = 'x'
	}
	if err := os.WriteFile(l.lost, state, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Break makes the GPU of that number report a critical error to all who listen, now or later, until
// Repair: XID 79 says that it has fallen off the bus.
func (l Library) Break(t *testing.T, number, xid int) {
	t.Helper()
	l.event(t, number, xid)
}

// event adds a line to the events: a GPU, an XID, and the numbers of instances where it is theirs.
func (l Library) event(t *testing.T, numbers ...any) {
	t.Helper()
	file, err := os.OpenFile(l.events, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintln(file, numbers...)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// Repair ends the reports of all GPUs.
func (l Library) Repair(t *testing.T) {
	t.Helper()
	if err := os.Remove(l.events); err != nil {
		t.Fatal(err)
	}
}

// Say makes the GPU of that number say so of itself, and all others that nothing is wrong.
func (l Library) Say(t *testing.T, number int, health Health) {
	t.Helper()
	one := map[bool]int{true: 1}
	text := strings.Repeat("0 0 0\n", number) +
		fmt.Sprintln(one[health.RowRemapFailed], one[health.PagesPending], health.RecoveryAction)
	if err := os.WriteFile(l.health, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (m Machine) header(l Library) string {
	var text strings.Builder
	n := len(m.Ancestor)
	name, memory := cmp.Or(m.Model.Name, "Fake GPU"), cmp.Or(uint64(m.Model.MemoryMiB)<<20, Memory)
	reserved := Reserved
	if m.OldDriver {
		reserved = 0 // as it does not say
	}
	fmt.Fprintf(&text,
		"#define COUNT %d\n#define NAME %q\n#define MEMORY %dull\n#define RESERVED %dull\n"+
			"#define BUS %d\n#define INIT %d\n#define LOST %q\n"+
			"#define EVENTS %q\n#define HEALTH %q\n#define USAGE %q\n",
		n, name, memory, reserved, bus, m.Init, l.lost, l.events, l.health, l.usage)
	text.WriteString(m.profiles(l))
	if m.OldDriver {
		text.WriteString("#define OLD_DRIVER\n")
	}
	matrix := func(name string, value func(i, j int) int) {
		fmt.Fprintf(&text, "static const int %s[COUNT][COUNT] __attribute__((unused)) = {\n", name)
		for i := range n {
			text.WriteString("\t{")
			for j := range n {
				fmt.Fprintf(&text, "%d, ", value(i, j))
			}
			text.WriteString("},\n")
		}
		text.WriteString("};\n")
	}
	matrix("ancestor", func(i, j int) int { return m.Ancestor[i][j] })
	matrix("nvlink", func(i, j int) int {
		if m.NVLink != nil && m.NVLink[i][j] {
			return 1
		}
		return 0
	})
	return text.String()
}

// includeDir is where go-nvml has NVIDIA's header.
func includeDir(ctx context.Context) (string, error) {
	out, err := goCommand(ctx, "mod", "download", "-json", "github.com/NVIDIA/go-nvml")
	if err != nil {
		return "", err
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", err
	}
	return filepath.Join(module.Dir, "pkg", "nvml"), nil
}

// sourceDir is this package's testdata, whichever test calls.
func sourceDir(ctx context.Context) (string, error) {
	dir, err := goCommand(ctx, "list", "-f", "{{.Dir}}", reflect.TypeFor[Machine]().PkgPath())
	return filepath.Join(strings.TrimSpace(string(dir)), "testdata"), err
}

func goCommand(ctx context.Context, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, "go", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
