// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"github.com/kubedevice/kubedevice/pkg/seal"
)

// parse parses args as the command does, without running it.
func parse(args ...string) (*Options, error) {
	options, command := newCommand(args)
	if err := command.ParseFlags(args); err != nil {
		return nil, err
	}
	return options, options.complete(command.Flags())
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestArguments(t *testing.T) {
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "kubelet.yaml"),
		"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: "+
			"unix:///run/from-config.sock\nfailSwapOn: false\nfromTheFuture: {a: 1}\n")
	dropIns := filepath.Join(dir, "drop-ins")
	write(t, filepath.Join(dropIns, "10.conf"), "containerRuntimeEndpoint: unix:///run/from-10.sock\n")
	write(t, filepath.Join(dropIns, "20", "x.conf"), "containerRuntimeEndpoint: unix:///run/from-20.sock\n")
	write(t, filepath.Join(dropIns, "30.conf"), "maxPods: 5\n")
	write(t, filepath.Join(dropIns, "40.txt"), "containerRuntimeEndpoint: unix:///run/not-a-drop-in.sock\n")
	defaults := *NewOptions()
	defaults.NodeName = "node-1"
	with := func(change func(*Options)) *Options {
		changed := defaults
		change(&changed)
		return &changed
	}
	for name, test := range map[string]struct {
		args []string
		want *Options
	}{
		"none": {nil, &defaults},
		"kubecri's own": {
			[]string{
				"--cridevices=/d", "--cri-upstream", "/run/crio/crio.sock", "--device-firewall=off", "--state-dir=/s",
				"--device-firewall-allow=a/b,c/*",
				"--root-dir=/k",
				"--metrics-bind-address=", "--container-runtime-endpoint=unix:///run/x.sock",
				"--seal-certificates=/c", "--seal-trust-bundle=t", "--seal-mode=warn",
			},
			with(func(o *Options) {
				o.PluginDir, o.UpstreamEndpoint, o.StateDir, o.MetricsAddress, o.ServeEndpoint = "/d",
					"/run/crio/crio.sock", "/s", "", "unix:///run/x.sock"
				o.KubeletDir = "/k"
				o.SealCertificates, o.SealTrustBundle, o.SealMode = "/c", "t", seal.Warn
				o.DeviceFirewall, o.DeviceFirewallAllow = false, []string{"a/b", "c/*"}
			}),
		},
		"an NRI plugin, with the kubelet's endpoint": {
			[]string{"--mode=nri", "--config=" + config, "--cri-upstream=unix:///run/from-config.sock"},
			with(func(o *Options) {
				o.Mode, o.UpstreamEndpoint, o.ServeEndpoint = ModeNRI, "unix:///run/from-config.sock",
					"unix:///run/from-config.sock"
			}),
		},
		"a kubelet's, as kubeadm writes them": {
			[]string{"--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
				"--kubeconfig=/etc/kubernetes/kubelet.conf", "--config=" + config,
				"--node-ip", "10.0.0.1", "--pod-infra-container-image=localhost/pause:1", "--cgroup-driver=systemd",
				"--v=2", "--register-with-taints=a=b:NoSchedule",
				"--ignore-unknown-kubelet-flags"},
			with(func(o *Options) {
				o.Kubeconfig, o.ServeEndpoint = "/etc/kubernetes/kubelet.conf", "unix:///run/from-config.sock"
			}),
		},
		"a kubelet's of before 1.27": {[]string{"--container-runtime=remote"}, &defaults},
		"underscores for hyphens": {
			[]string{"--state_dir=/s"}, with(func(o *Options) { o.StateDir = "/s" }),
		},
		"deprecated ones, which have no effect": {
			[]string{"--isolate=false", "--device-plugins-dir=/dp", "--plugins-registry-dir=/pr",
				"--pod-resources-dir", "/res", "--device-series", "3"}, &defaults,
		},
		"the deprecated switch without a value": {[]string{"--isolate"}, &defaults},
		"bools without and with a value":        {[]string{"--register-node", "--fail-swap-on=false"}, &defaults},
		"drop-ins beat the configuration file": {
			[]string{"--config=" + config, "--config-dir=" + dropIns},
			with(func(o *Options) { o.ServeEndpoint = "unix:///run/from-20.sock" }),
		},
		"a flag beats both": {
			[]string{"--container-runtime-endpoint=/run/flag.sock", "--config=" + config, "--config-dir=" + dropIns},
			with(func(o *Options) { o.ServeEndpoint = "/run/flag.sock" }),
		},
		"no drop-ins": {[]string{"--config-dir=" + filepath.Join(dir, "none")}, &defaults},
		"unknown flags of a newer kubelet": {
			[]string{"--from-the-future=1", "--and-another", "--ignore-unknown-kubelet-flags", "--state-dir=/s"},
			with(func(o *Options) { o.StateDir = "/s" }),
		},
		"the same with the permission in front": {
			[]string{"--ignore_unknown_kubelet_flags=true", "--from-the-future=1"}, &defaults,
		},
	} {
		got, err := parse(append([]string{"--hostname-override=Node-1"}, test.args...)...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(test.want, got, cmpopts.IgnoreUnexported(Options{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestArgumentsThatCannotWork(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"a flag that nobody knows": {[]string{"--from-the-future=1"}, "unknown flag: --from-the-future"},
		"the permission refused": {
			[]string{"--ignore-unknown-kubelet-flags=false", "--from-the-future=1"}, "unknown flag: --from-the-future",
		},
		"a kubelet's bool that is none": {[]string{"--register-node=perhaps"}, "register-node"},
		"its own socket upstream": {
			[]string{"--cri-upstream=/run/x.sock", "--container-runtime-endpoint=unix:///run/x.sock"},
			"would call itself",
		},
		"a mode that there is not":       {[]string{"--mode=both"}, `"both" is neither cri nor nri`},
		"an NRI plugin without a socket": {[]string{"--mode=nri", "--nri-socket="}, "--nri-socket is empty"},
		"a runtime that is no socket":    {[]string{"--cri-upstream=tcp://1.2.3.4:5"}, "--cri-upstream"},
		"an endpoint that is no socket": {
			[]string{"--container-runtime-endpoint=npipe:////./pipe/x"}, "--container-runtime-endpoint",
		},
		"an address without a port":         {[]string{"--metrics-bind-address=127.0.0.1"}, "--metrics-bind-address"},
		"seals without keys":                {[]string{"--seal-mode=warn"}, "--seal-certificates"},
		"a mode of seals that there is not": {[]string{"--seal-mode=strict"}, "use off, warn or enforce"},
		"a trust bundle without an API server": {
			[]string{"--seal-trust-bundle=seals"}, `"seals" is read from the API server, so it needs --kubeconfig`,
		},
		"no state directory": {[]string{"--state-dir="}, "--state-dir"},
		"the kubelet's directory as its own": {
			[]string{"--state-dir=/var/lib/kubelet"}, "--state-dir is the kubelet's own directory",
		},
		"a configuration that is not there": {[]string{"--config=" + filepath.Join(dir, "none")}, "none"},
		"a configuration that is no YAML": {
			[]string{"--config=" + write(t, filepath.Join(dir, "bad.yaml"), "a: b: c")}, "bad.yaml",
		},
	} {
		if _, err := parse(test.args...); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want an error with %q", name, err, test.says)
		}
	}
}

func TestAnAddressForOtherMachinesNeedsAnAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Options)
		want   string // empty: it is valid
	}{
		"the default":                       {func(*Options) {}, ""},
		"none":                              {func(o *Options) { o.MetricsAddress = "" }, ""},
		"all addresses, with an API server": {func(o *Options) { o.MetricsAddress, o.Kubeconfig = ":10261", "k" }, ""},
		"all addresses, without":            {func(o *Options) { o.MetricsAddress = "0.0.0.0:10261" }, "who may read"},
		"no port":                           {func(o *Options) { o.MetricsAddress = "localhost" }, "missing port"},
		"a certificate without a key":       {func(o *Options) { o.MetricsCertificate = "a" }, "need each other"},
		"a certificate that is not there": {func(o *Options) {
			o.MetricsAddress, o.Kubeconfig, o.MetricsCertificate, o.MetricsKey = ":1", "k", "/none", "/none"
		}, "/none: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			options := NewOptions()
			options.Kubeconfig = ""
			test.change(options)
			err := options.validateMetrics()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func TestDeprecatedFlagsAreHiddenAndSayWhatToDo(t *testing.T) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	var out strings.Builder
	flags.SetOutput(&out)
	NewOptions().addFlags(flags)
	for name, advice := range deprecatedFlags {
		out.Reset()
		if err := flags.Parse([]string{"--" + name + "=7"}); err != nil {
			t.Errorf("--%s: %v", name, err)
		}
		if flag := flags.Lookup(name); !flag.Hidden || !strings.Contains(out.String(), advice) ||
			!strings.Contains(advice, "it has no effect") {
			t.Errorf("--%s: hidden %v, says %q", name, flag.Hidden, out.String())
		}
	}
}
