// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package trim

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnmapsOnlyUnchangedReadOnlyFilePages(t *testing.T) {
	smaps := `00400000-01133000 r--p 00000000 fd:01 42   /usr/local/bin/kubecri
Rss:               13516 kB
Anonymous:             0 kB
VmFlags: rd mr mw me sd
01133000-02a5a000 r-xp 00d33000 fd:01 42   /usr/local/bin/kubecri
Anonymous:             0 kB
04798000-04799000 r--p 04397000 fd:01 42   /usr/local/bin/kubecri
Anonymous:             4 kB
04799000-04835000 rw-p 04398000 fd:01 42   /usr/local/bin/kubecri
Anonymous:             0 kB
c000000000-c000800000 rw-p 00000000 00:00 0
Anonymous:          8192 kB
7f0000000000-7f0000001000 r--s 00000000 fd:01 43   /var/lib/shared
Anonymous:             0 kB
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0    [vdso]
Anonymous:             0 kB
`
	got, err := unchangedFileRanges(strings.NewReader(smaps))
	if err != nil {
		t.Fatal(err)
	}
	want := []addressRange{{0x400000, 0x1133000}, {0x1133000, 0x2a5a000}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(addressRange{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProcessRunsOnWithFewerFilePages(t *testing.T) {
	beforeTrim := residentFilePages(t)
	if err := unmapFilePages(); err != nil {
		t.Fatal(err)
	}
	if afterTrim := residentFilePages(t); afterTrim >= beforeTrim/2 {
		t.Errorf("%d kB of files are mapped after %d kB", afterTrim, beforeTrim)
	}
}

// residentFilePages returns the kilobytes of files in the process's memory.
func residentFilePages(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "RssFile:")
	kilobytes, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes
}
