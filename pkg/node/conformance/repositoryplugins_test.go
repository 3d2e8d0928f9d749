// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/mig"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
)

// TestTheRepositorysPluginsPass tests the pairs of this repository. Where it says so, there are
// fakes of their hardware.
func TestTheRepositorysPluginsPass(t *testing.T) {
	tests := map[string]struct {
		device, scheduler string // packages, from here
		prepare           func(t *testing.T, options *Options)
		inapplicable      []string // checks that have nothing to do
	}{
		"simgpu": {
			device: "../../../plugins/simgpu/device", scheduler: "../../../plugins/simgpu/scheduler",
			prepare: func(t *testing.T, options *Options) {
				dir := t.TempDir()
				config := func(unhealthy string) string {
					file := filepath.Join(dir, "config"+unhealthy)
					text := fmt.Sprintf("count: 8\ntopology: [2, 4]\ndeviceDir: %s/dev\nunhealthy: [%s]\n", dir,
						unhealthy)
					if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
					return file
				}
				whole, broken, file := config(""), config("sim-3"), filepath.Join(dir, "simgpu.yaml")
				options.Break = fmt.Sprintf("ln -sf %s %s", broken, file)
				options.Repair = fmt.Sprintf("ln -sf %s %s", whole, file)
				t.Setenv("KUBEDEVICE_SIMGPU_CONFIG", file)
				if err := options.Limits.shell(options.Repair); err != nil {
					t.Fatal(err)
				}
			},
			inapplicable: []string{kindDevice + "/firewall", kindScheduler + "/pure", kindScheduler + "/observer"},
		},
		"nvidiagpu with a fake of NVML": {
			device: "../../../plugins/nvidiagpu/device", scheduler: "../../../plugins/nvidiagpu/scheduler",
			prepare: func(t *testing.T, options *Options) {
				library := nvmltest.Build(t, nvmltest.Machine{
					Ancestor: nvmltest.Matrix(4, func(_, _ int) int { return 30 }),
					NVLink:   nvmltest.Matrix(4, func(i, j int) bool { return i != j && i%2 == j%2 }),
				})
				dir := filepath.Dir(library.Path)
				t.Setenv("LD_LIBRARY_PATH", dir)
				options.Break = fmt.Sprintf("printf x%s >%s/lost", strings.Repeat(".", 63), dir)
				options.Repair = fmt.Sprintf("printf %s >%s/lost", strings.Repeat(".", 64), dir)
			},
			inapplicable: []string{kindScheduler + "/pure", kindScheduler + "/observer"},
		},
		"nvidiagpu with partitioned GPUs": {
			device: "../../../plugins/nvidiagpu/device", scheduler: "../../../plugins/nvidiagpu/scheduler",
			prepare: func(t *testing.T, options *Options) {
				library := nvmltest.Build(t, nvmltest.Machine{
					Ancestor: nvmltest.Matrix(2, func(_, _ int) int { return 30 }), Model: mig.H100With80GB(),
				})
				library.Partition(t, map[int][]nvmltest.Part{
					1: {library.At("1g.10gb", 0), library.At("1g.10gb", 1), library.At("3g.40gb", 4)},
				})
				dir := filepath.Dir(library.Path)
				t.Setenv("LD_LIBRARY_PATH", dir)
				options.Break = fmt.Sprintf("printf .x >%s/lost", dir)
				options.Repair = fmt.Sprintf("printf .. >%s/lost", dir)
			},
			inapplicable: []string{kindScheduler + "/pure", kindScheduler + "/observer"},
		},
		"nvidiagpu without hardware": {
			device: "../../../plugins/nvidiagpu/device", scheduler: "../../../plugins/nvidiagpu/scheduler",
			prepare: func(t *testing.T, options *Options) {
				options.NoDevices = true
				// A library of that name which is none: this machine may have the real one.
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "libnvidia-ml.so.1"), []byte("none"), 0o644); err != nil {
					t.Fatal(err)
				}
				t.Setenv("LD_LIBRARY_PATH", dir)
			},
			inapplicable: []string{
				kindDevice + "/starts", kindDevice + "/inventory", kindDevice + "/inventory-stable",
				kindDevice + "/inventory-adds", kindDevice + "/inventory-own", kindDevice + "/health",
				kindDevice + "/reasons",
				kindDevice + "/allocate-each", kindDevice + "/allocate-all", kindDevice + "/allocate-same",
				kindDevice + "/allocate-exact", kindDevice + "/allocate-none", kindDevice + "/allocate-unknown",
				kindDevice + "/allocate-valid", kindDevice + "/allocate-reads", kindDevice + "/allocate-own",
				kindDevice + "/hostile", kindDevice + "/concurrent", kindDevice + "/restart", kindScheduler + "/pure",
				kindScheduler + "/observer", kindPair + "/pair",
			},
		},
		"the template": {
			device: "../../../plugins/template/device", scheduler: "../../../plugins/template/scheduler",
			prepare: func(t *testing.T, _ *Options) {
				dir := t.TempDir()
				t.Setenv("WIDGET_DIR", dir)
				for _, widget := range []string{"b0/w0", "b0/w1", "b1/w2", "b1/w3"} {
					node := filepath.Join(dir, widget)
					if err := os.MkdirAll(filepath.Dir(node), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := syscall.Mknod(node, syscall.S_IFCHR|0o600, 0); err != nil {
						t.Fatal(err)
					}
				}
			},
			inapplicable: []string{
				kindDevice + "/firewall", kindDevice + "/health", kindDevice + "/reasons", kindDevice + "/concurrent",
				kindScheduler + "/translator",
				kindScheduler + "/after-wait", kindScheduler + "/preferring", kindScheduler + "/observer",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			device := buildPlugin(t, test.device, ".")
			scheduler := buildPlugin(t, test.scheduler, ".")
			options := patient()
			test.prepare(t, &options)
			report, err := Files(t.Context(), []string{scheduler, device}, options)
			if err != nil {
				t.Fatal(err)
			}
			var not []string
			for _, result := range report.Results {
				if result.Status == NotApplicable {
					not = append(not, result.Kind+"/"+result.Check)
				}
			}
			if diff := cmp.Diff(test.inapplicable, not); diff != "" || len(failures(report)) > 0 {
				t.Errorf("not applicable (-want +got):\n%s%s", diff, text(t, report))
			}
		})
	}
}
