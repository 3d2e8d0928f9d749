// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nvmltest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/mig"
)

// Part is a GPU instance of a partitioned GPU.
type Part struct {
	mig.Instance
	// Compute is the slices of each of its compute instances. If it is nil, there is one of all.
	Compute []int
}

// At returns the part of a profile that begins at a slice.
func (l Library) At(profile string, start int) Part {
	p := l.profile(profile)
	return Part{Instance: mig.Instance{Profile: profile, Place: mig.Place{Start: start, Size: p.Places[0].Size}}}
}

func (l Library) profile(name string) mig.Profile {
	return l.model.Profiles[slices.IndexFunc(l.model.Profiles, func(p mig.Profile) bool { return p.Name == name })]
}

// InstanceUUID returns the UUID of a compute instance, by the numbers of its GPU, of its GPU
// instance there, and its own in that.
func InstanceUUID(number, gi, ci int) string {
	return fmt.Sprintf("MIG-00000000-0000-%04d-%04d-%012d", gi, ci, number)
}

// Partition puts GPUs, by their numbers, into MIG mode, and all others out of it. The parts of each
// are GPU instances 1, 2, … of it, and theirs are compute instances 0, 1, ….
func (l Library) Partition(t *testing.T, gpus map[int][]Part) {
	t.Helper()
	if err := l.WritePartitions(gpus); err != nil {
		t.Fatal(err)
	}
}

// WritePartitions does what Partition does.
func (l Library) WritePartitions(gpus map[int][]Part) error {
	var text strings.Builder
	for number, parts := range gpus {
		fmt.Fprintf(&text, "%d on\n", number)
		for i, part := range parts {
			position := slices.IndexFunc(l.model.Profiles, func(p mig.Profile) bool { return p.Name == part.Profile })
			fmt.Fprintf(&text, "%d gi %d %d %d\n", number, i+1, position, part.Place.Start)
			compute := part.Compute
			if compute == nil {
				compute = []int{l.model.Profiles[position].Slices}
			}
			for j, slices := range compute {
				fmt.Fprintf(&text, "%d ci %d %d %d\n", number, i+1, j, slices)
			}
		}
	}
	next := l.mig + ".test"
	return errors.Join(os.WriteFile(next, []byte(text.String()), 0o644), os.Rename(next, l.mig))
}

// Use has a program use a GPU instance of a GPU, until the next Partition.
func (l Library) Use(t *testing.T, number, gi int) {
	t.Helper()
	content, err := os.ReadFile(l.mig)
	if err == nil {
		err = os.WriteFile(l.mig, fmt.Appendf(content, "%d used %d\n", number, gi), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Partitions returns how the GPUs are partitioned, by number, each instance as profile@slice, in
// the order of the slices. A GPU instance without compute instances has a minus sign behind it.
func (l Library) Partitions(t *testing.T) map[int][]string {
	t.Helper()
	content, err := os.ReadFile(l.mig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	gpus := map[int][]string{}
	for line := range strings.Lines(string(content)) {
		var number, gi, position, start int
		if _, err := fmt.Sscanf(line, "%d gi %d %d %d", &number, &gi, &position, &start); err == nil {
			text := fmt.Sprintf("%d %s@%d", start, l.model.Profiles[position].Name, start)
			if !strings.Contains(string(content), fmt.Sprintf("%d ci %d ", number, gi)) {
				text += "-"
			}
			gpus[number] = append(gpus[number], text)
		} else if strings.HasSuffix(line, " on\n") {
			_, _ = fmt.Sscan(line, &number)
			gpus[number] = append([]string{}, gpus[number]...)
		}
	}
	for _, list := range gpus {
		slices.Sort(list)
		for i := range list {
			_, list[i], _ = strings.Cut(list[i], " ")
		}
	}
	return gpus
}

// BreakInstance makes a GPU report a critical error of one of its compute instances, as Break does.
func (l Library) BreakInstance(t *testing.T, number, xid, gi, ci int) {
	t.Helper()
	l.event(t, number, xid, gi, ci)
}

// indexes are NVML's numbers for the kinds of profiles of a model: of 1, 2, 3, 4 and 7 slices, the
// one with media extensions (1_SLICE_REV1), and the one with twice the memory (1_SLICE_REV2).
var indexes = []int{0, 1, 2, 3, 4, 7, 9}

// profiles returns the part of machine.h that mig.c reads.
func (m Machine) profiles(l Library) string {
	var text strings.Builder
	fmt.Fprintf(&text, "#define MIG %q\n#define PROFILES %d\n", l.mig, len(m.Model.Profiles))
	text.WriteString("static const struct {\n\tconst char *name;\n\tunsigned int index, id, starts[8];\n" +
		"\tint slices, memory, max, size, places;\n} profiles[PROFILES + 1] __attribute__((unused)) = {\n")
	for i, p := range m.Model.Profiles {
		var starts []string
		for _, place := range p.Places {
			starts = append(starts, fmt.Sprint(place.Start))
		}
		fmt.Fprintf(&text, "\t{%q, %d, %d, {%s}, %d, %d, %d, %d, %d},\n", p.Name, indexes[i], p.ID,
			strings.Join(starts, ", "), p.Slices, p.MemoryMiB, p.Max, p.Places[0].Size, len(p.Places))
	}
	text.WriteString("};\n")
	return text.String()
}
