// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/policing"
	"github.com/kubedevice/kubedevice/pkg/node/usage"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// head begins every configuration file.
const head = "apiVersion: kubecri.config.kubedevice.io/v1alpha1\nkind: KubecriConfiguration\n"

func TestFlagsWinOverTheConfigurationAndThatOverTheKubelets(t *testing.T) {
	dir := t.TempDir()
	kubelet := write(t, filepath.Join(dir, "kubelet.yaml"), "containerRuntimeEndpoint: unix:///run/kubelet.sock\n")
	full := write(t, filepath.Join(dir, "full.yaml"), head+`
mode: nri
containerRuntimeEndpoint: unix:///run/c.sock
criUpstream: unix:///run/r.sock
criDevices: /d
allowWritablePlugins: true
deviceFirewall: off
deviceFirewallAllow: [gpu-operator/*, monitoring/dcgm-exporter]
deviceFirewallVendors:
- name: mthreads.com
  variables:
  - {name: MTHREADS_VISIBLE_DEVICES, nothing: void, takes: any}
  deviceFiles: [/dev/mtgpu*]
- {name: nvidia.com, otherDrivers: [GPU-tools.example.com]}
virtualDevices: {nvidia.com/gpu: 10, a.b/c: 2}
onShareExceeded: Evict
shareExceededGracePeriod: 5s
contextMemory: {"*": 1Gi, H100 NVL: 500Mi}
shareLibrary: ""
shareLibraryLocks: /l
isolate: true
stateDir: /s
devicePluginsDir: /dp
pluginsRegistryDir: /pr
podResourcesDir: /res
metricsBindAddress: ""
kubeconfig: /k
hostnameOverride: from-file
sealCertificates: /c
sealTrustBundle: t
sealMode: warn
`)
	empty := write(t, filepath.Join(dir, "empty.yaml"), head)
	asJSON := write(t, filepath.Join(dir, "kubecri.json"),
		`{"apiVersion":"kubecri.config.kubedevice.io/v1alpha1","kind":"KubecriConfiguration","stateDir":"/j"}`)
	of := func(change func(*Options)) *Options {
		options := NewOptions()
		options.NodeName = "node-1"
		change(options)
		return options
	}
	inFile := func(o *Options) {
		o.Mode = ModeNRI
		o.ServeEndpoint, o.UpstreamEndpoint, o.PluginDir = "unix:///run/c.sock", "unix:///run/r.sock", "/d"
		o.StateDir, o.MetricsAddress, o.Kubeconfig, o.NodeName = "/s", "", "/k", "from-file"
		o.DeviceFirewall, o.DeviceFirewallAllow = false, []string{"gpu-operator/*", "monitoring/dcgm-exporter"}
		o.DeviceFirewallVendors = []firewall.Vendor{{
			Name: "mthreads.com", DeviceFiles: []string{"/dev/mtgpu*"}, Variables: []firewall.Variable{
				{Name: "MTHREADS_VISIBLE_DEVICES", Nothing: "void", Takes: firewall.TakesAny},
			},
		}, {Name: "nvidia.com", OtherDrivers: []string{"GPU-tools.example.com"}}}
		o.VirtualDevices = map[string]int64{"nvidia.com/gpu": 10, "a.b/c": 2}
		o.OnShareExceeded, o.ShareExceededGracePeriod = policing.Evict, 5*time.Second
		o.ContextMemory = usage.ContextMemory{usage.AnyModel: 1 << 30, "H100 NVL": 500 << 20}
		o.ShareLibrary.Locks = "/l"
		o.AllowWritablePlugins = true
		o.SealCertificates, o.SealTrustBundle, o.SealMode = "/c", "t", seal.Warn
	}
	for name, test := range map[string]struct {
		args []string
		want *Options
	}{
		"a file that says everything": {[]string{"--kubecri-config=" + full}, of(inFile)},
		"flags beside it": {[]string{"--kubecri-config=" + full, "--state-dir=/flag",
			"--metrics-bind-address=127.0.0.1:1", "--hostname-override=node-1", "--device-firewall",
			"--device-firewall-allow=a/b", `--device-firewall-vendors=[{"name": "a.b"}]`,
			"--virtual-devices=nvidia.com/gpu=4"},
			of(func(o *Options) {
				inFile(o)
				o.VirtualDevices = map[string]int64{"nvidia.com/gpu": 4}
				o.DeviceFirewall, o.DeviceFirewallAllow = true, []string{"a/b"}
				o.DeviceFirewallVendors = []firewall.Vendor{{Name: "a.b"}}
				o.StateDir, o.MetricsAddress, o.NodeName = "/flag", "127.0.0.1:1", "node-1"
			})},
		"a flag with the default's value": {[]string{"--kubecri-config=" + full,
			"--cri-upstream=" + NewOptions().UpstreamEndpoint},
			of(func(o *Options) { inFile(o); o.UpstreamEndpoint = NewOptions().UpstreamEndpoint })},
		"the kubelet's beside it": {[]string{"--kubecri-config=" + full, "--config=" + kubelet}, of(inFile)},
		"the kubelet's beside one that does not say it": {[]string{"--kubecri-config=" + empty, "--config=" + kubelet,
			"--hostname-override=node-1"},
			of(func(o *Options) { o.ServeEndpoint = "unix:///run/kubelet.sock" })},
		"a file of an earlier release": {
			[]string{"--kubecri-config=" + write(t, filepath.Join(dir, "old.yaml"),
				head+"isolate: false\ndevicePluginsDir: \"\"\n"),
				"--hostname-override=node-1"},
			of(func(*Options) {}),
		},
		"a list that lets nobody through": {
			[]string{"--kubecri-config=" + write(t, filepath.Join(dir, "none.yaml"), head+"deviceFirewallAllow: []\n"),
				"--hostname-override=node-1"},
			of(func(o *Options) { o.DeviceFirewallAllow = []string{} }),
		},
		"one in JSON": {
			[]string{"--kubecri-config=" + asJSON, "--hostname-override=node-1"},
			of(func(o *Options) { o.StateDir = "/j" }),
		},
	} {
		got, err := parse(test.args...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(test.want, got, cmpopts.IgnoreUnexported(Options{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAConfigurationThatIsNotObeyedInFullIsAnErrorThatNamesFileAndField(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct{ content, says string }{
		"a field that nobody knows": {head + "statDir: /s\n", `unknown field "statDir"`},
		"one inside another":        {head + "logging: {fromat: json}\n", `unknown field "logging.fromat"`},
		"a field in another case":   {head + "statedir: /s\n", `unknown field "statedir"`},
		"a field twice":             {head + "stateDir: /s\nstateDir: /t\n", `"stateDir"`},
		"a field of the wrong type": {head + "stateDir: [1]\n", "stateDir"},
		"another version": {
			strings.Replace(head, "v1alpha1", "v9", 1), `apiVersion is "kubecri.config.kubedevice.io/v9"`,
		},
		"another kind": {
			strings.Replace(head, "Kubecri", "Kubelet", 1), `kind is "KubeletConfiguration"`,
		},
		"no version":                    {"stateDir: /s\n", `apiVersion is ""`},
		"nothing":                       {"", `apiVersion is ""`},
		"no YAML":                       {"a: b: c", "yaml"},
		"a list":                        {"[1]", "cannot unmarshal"},
		"a value that the flag refuses": {head + "logging: {verbosity: 4294967295}\n", "invalid argument"},
		"a pod to let through without a namespace": {
			head + "deviceFirewallAllow: [dcgm-exporter]\n", `--device-firewall-allow: "dcgm-exporter" is not`,
		},
		"virtual devices of what is no extended resource": {
			head + "virtualDevices: {gpu: 2}\n", `--virtual-devices: "gpu" is no extended resource`,
		},
		"no virtual devices": {
			head + "virtualDevices: {nvidia.com/gpu: 0}\n",
			`--virtual-devices: each device of nvidia.com/gpu counts 0 times`,
		},
		"a vendor that is built in": {
			head + "deviceFirewallVendors: [{name: nvidia.com}]\n", `vendor "nvidia.com": this vendor is built in`,
		},
		"a vendor that is built in, with more than drivers": {
			head + "deviceFirewallVendors: [{name: amd.com, otherDrivers: [a.b], mountPaths: [/x]}]\n",
			`vendor "amd.com": this vendor is built in: declare nothing but its otherDrivers`,
		},
		"a driver that is no name of one": {
			head + "deviceFirewallVendors: [{name: nvidia.com, otherDrivers: [a_b]}]\n",
			`vendor "nvidia.com": driver "a_b" of resource claims: `,
		},
		"a driver without a name": {
			head + "deviceFirewallVendors: [{name: a.b, otherDrivers: [\"\"]}]\n", `driver "" of resource claims: `,
		},
		"a driver with a longer name than drivers have": {
			head + "deviceFirewallVendors: [{name: a.b, otherDrivers: [" + strings.Repeat("a", 64) + "]}]\n",
			`of resource claims: must be no more than 63 `,
		},
		"a vendor twice": {
			head + "deviceFirewallVendors: [{name: a.b}, {name: a.b}]\n", `vendor "a.b" stands twice`,
		},
		"a vendor's field that nobody knows": {
			head + "deviceFirewallVendors: [{name: a.b, mounts: [/x]}]\n",
			`unknown field "deviceFirewallVendors[0].mounts"`,
		},
		"a vendor whose name is no domain": {head + "deviceFirewallVendors: [{name: a_b}]\n", `vendor "a_b": `},
		"a vendor's variable that takes neither": {
			head + "deviceFirewallVendors: [{name: a.b, variables: [{name: A, takes: middle}]}]\n",
			`variable "A": takes is "middle"; want first, last or any`,
		},
		"a vendor's variable that is none": {
			head + "deviceFirewallVendors: [{name: a.b, variables: [{name: A=B}]}]\n", `variable "A=B": `,
		},
		"a vendor's device file elsewhere": {
			head + "deviceFirewallVendors: [{name: a.b, deviceFiles: [/x]}]\n", `device file "/x" is not a pattern`,
		},
		"a value that cannot work": {head + "criUpstream: tcp://1.2.3.4:5\n", "--cri-upstream"},
	} {
		file := write(t, filepath.Join(dir, "kubecri.yaml"), test.content)
		_, err := execute("--kubecri-config="+file, "--hostname-override=node-1")
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want an error with %q", name, err, test.says)
		} else if inside := !strings.Contains(test.says, "--"); inside &&
			!strings.Contains(err.Error(), "--kubecri-config: "+file+": ") {
			t.Errorf("%s: %q does not name the file", name, err)
		}
	}
	if _, err := execute("--kubecri-config=" + filepath.Join(dir, "none")); err == nil ||
		!strings.Contains(err.Error(), "--kubecri-config: open "+dir) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestOtherCommandsReadTheConfigurationToo(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "kubecri.yaml"), head+"stateDir: "+filepath.Join(dir, "missing")+
		"\nkubeconfig: "+filepath.Join(dir, "missing.conf")+"\n")
	if _, err := execute("cleanup", "--kubecri-config="+file); err == nil ||
		!strings.Contains(err.Error(), "missing.conf") {
		t.Errorf("cleanup: %v, want that the configuration's kubeconfig is not there", err)
	}
	write(t, filepath.Join(dir, "missing", grantsFile), "no record")
	if _, err := execute("grants", "--kubecri-config="+file); err == nil ||
		!strings.Contains(err.Error(), filepath.Join(dir, "missing")) {
		t.Errorf("grants: %v, want that the record in the configuration's directory cannot be read", err)
	}
	if out, err := execute("grants", "--kubecri-config="+file, "--state-dir="+t.TempDir()); err != nil {
		t.Errorf("grants of another directory: %q, %v", out, err)
	}
}

func TestEveryFlagOfKubecrisOwnHasAFieldInItsConfiguration(t *testing.T) {
	ofTheKubelet := map[string]bool{"config": true, "config-dir": true, "root-dir": true, ignoreUnknownFlag: true}
	_, command := newCommand(nil)
	values := (&Configuration{}).values()
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		logging := strings.HasPrefix(flag.Name, "log-") || flag.Name == "vmodule"
		if _, has := values[flag.Name]; !has && !flag.Hidden && !logging && !ofTheKubelet[flag.Name] &&
			flag.Name != configurationFlag {
			t.Errorf("--%s has no field in Configuration", flag.Name)
		}
		delete(values, flag.Name)
	})
	for name := range values {
		t.Errorf("a field stands for --%s, which is no flag", name)
	}
}

func TestTheDeployedConfigurationSaysTheDefaults(t *testing.T) {
	const directory = "../../../deploy/systemd/"
	got, err := parse("--kubecri-config="+directory+"kubecri.yaml", "--hostname-override=node-1")
	if err != nil {
		t.Fatal(err)
	}
	want := NewOptions()
	want.NodeName, want.Kubeconfig = "node-1", "/etc/kubernetes/kubelet.conf"
	want.SealCertificates = "/etc/kubedevice/seal-certificates.pem"
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Options{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	socket, err := os.ReadFile(directory + "kubecri.socket")
	if err != nil {
		t.Fatal(err)
	}
	if path := strings.TrimPrefix(got.ServeEndpoint, "unix://"); !strings.Contains(string(socket),
		"ListenStream="+path+"\n") {
		t.Errorf("kubecri.socket does not listen on %s", path)
	}
}

func FuzzDecodeConfiguration(f *testing.F) {
	for _, seed := range []string{"", head, head + "stateDir: /s\nlogging: {format: json, verbosity: 3}\n",
		head + "stateDir: /s\nstateDir: /t\n", "{}", "[1]", "a: b: c"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := decodeConfiguration(raw)
		if err != nil {
			return
		}
		written, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeConfiguration(written)
		if err != nil {
			t.Fatalf("%q was written as %q: %v", raw, written, err)
		}
		if diff := cmp.Diff(c, again); diff != "" {
			t.Errorf("%q (-first +second):\n%s", raw, diff)
		}
	})
}
