// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAPluginThatPanicsOrHangsIsReportedWithWhereAndWhatToDo(t *testing.T) {
	file := buildPlugin(t, ".", "./testdata/faulty")
	for fault, test := range map[string]struct{ check, fix, in string }{
		"UpdateNodeInfo panics":                      {"inventory", fixPanic, "UpdateNodeInfo"},
		"it blocks when its devices' health is read": {"reasons", fixHang, "DeviceHealth"},
		"GetName hangs after the file is loaded":     {"name", fixHang, "GetName"},
		"a goroutine panics":                         {"allocate-all", fixGoroutine, "func"},
		"New hangs":                                  {"loads", fixHang, "New"},
		"New panics":                                 {"loads", fixPanic, "New"},
		"it calls os.Exit for an unknown device":     {"allocate-unknown", fixExit, ""},
		"it slices names that it has not checked": {
			"hostile", fixPanic + ": check a name with resource.ParsePath before you use parts of it", "Allocate",
		},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Setenv("FAULT", fault)
			options := patient()
			options.Limits.Start, options.Limits.Check = 10*time.Second, 0
			options.Limits.Health, options.Limits.Command = 0, 0
			report, err := Files(t.Context(), []string{file}, options)
			if err != nil {
				t.Fatal(err)
			}
			for _, result := range report.Results {
				if result.Kind != kindDevice || result.Check != test.check {
					continue
				}
				if result.Status != Failed || result.Fix != test.fix {
					t.Errorf("%s: %s, to do: %q, want %q", result.Status, result.Reason, result.Fix, test.fix)
				}
				if all := strings.Join(result.Stack, "\n"); (all == "") != (test.in == "") ||
					test.in != "" && (!strings.Contains(result.Stack[0], "faulty/main.go:") ||
						!strings.Contains(result.Stack[0], test.in)) {
					t.Errorf("%s: the stack is\n%s", result.Reason, all)
				}
			}
			if test.in != "" && !strings.Contains(text(t, report), "  at ") {
				t.Errorf("the stack is not printed:\n%s", text(t, report))
			}
			t.Log("\n" + text(t, report))
		})
	}
}

func TestTheFramesOfAPluginAreThoseBetweenPanicAndCall(t *testing.T) {
	const trace = `goroutine 8 [running]:
runtime/debug.Stack()
	runtime/debug/stack.go:26 +0x5e
github.com/kubedevice/kubedevice/pkg/node/conformance.contained[...].func1.1()
	github.com/kubedevice/kubedevice/pkg/node/conformance/device.go:82 +0x2b
panic({0x7f?, 0xc0?})
	runtime/panic.go:783 +0x132
example.com/widget/device.(*node).close(...)
	example.com/widget/device/close.go:5
panic({0x7f?, 0xc0?})
	runtime/panic.go:783 +0x132
runtime.goPanicIndex(0x5, 0x3)
	runtime/panic.go:115 +0x74
example.com/widget/device.(*node).board(0xc000, {0x1, 0x2})
	example.com/widget/device/main.go:31 +0x1d
example.com/widget/device.(*node).Allocate(0xc000)
	example.com/widget/device/main.go:52 +0x2f
github.com/kubedevice/kubedevice/pkg/node/conformance.(*devicePlugin).allocate.func1()
	github.com/kubedevice/kubedevice/pkg/node/conformance/device.go:150 +0x10
main.main()
	main.go:1 +0x1
`
	want := []string{
		"example.com/widget/device.(*node).board example.com/widget/device/main.go:31",
		"example.com/widget/device.(*node).Allocate example.com/widget/device/main.go:52",
	}
	if diff := cmp.Diff(want, frames(trace)); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
}
