// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/scheduler/config"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// configure runs the command with a configuration file, which is written back with all defaults.
// The API server does not exist.
func configure(t *testing.T, profiles string, flags ...string) (written, output, file string, err error) {
	t.Helper()
	dir := t.TempDir()
	file, into := filepath.Join(dir, "scheduler.yaml"), filepath.Join(dir, "written.yaml")
	content := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n" + profiles
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err = command(t, append([]string{
		"--config=" + file, "--write-config-to=" + into, "--master=http://127.0.0.1:1", "--secure-port=0",
		"--leader-elect=false",
	}, flags...)...)
	text, readErr := os.ReadFile(into)
	if err == nil && readErr != nil {
		t.Fatal(readErr)
	}
	return string(text), output, file, err
}

// writtenArgs returns the plugin's arguments of each profile in a written configuration.
func writtenArgs(t *testing.T, text string) map[string]config.KubeDeviceArgs {
	t.Helper()
	var written configv1.KubeSchedulerConfiguration
	if err := yaml.Unmarshal([]byte(text), &written); err != nil {
		t.Fatal(err)
	}
	all := map[string]config.KubeDeviceArgs{}
	for _, profile := range written.Profiles {
		for _, c := range profile.PluginConfig {
			var args config.KubeDeviceArgs
			if c.Name != frameworkplugin.Name {
				continue
			}
			if err := yaml.UnmarshalStrict(c.Args.Raw, &args); err != nil {
				t.Fatal(err)
			}
			all[*profile.SchedulerName] = args
		}
	}
	return all
}

func TestArgumentsHaveDefaultsAndFlagsWinOverTheFile(t *testing.T) {
	complete := func(change func(*config.KubeDeviceArgs)) config.KubeDeviceArgs {
		args := config.Defaults()
		args.TypeMeta = metav1.TypeMeta{APIVersion: "kubescheduler.config.k8s.io/v1", Kind: "KubeDeviceArgs"}
		args.SealMode = ptr.To(seal.Off)
		change(args)
		return *args
	}
	none := complete(func(*config.KubeDeviceArgs) {})
	warn := complete(func(a *config.KubeDeviceArgs) { a.Quota = ptr.To(frameworkplugin.QuotaWarn) })
	for name, test := range map[string]struct {
		profiles string
		flags    []string
		want     map[string]config.KubeDeviceArgs
		says     string
	}{
		"without arguments": {"", nil, map[string]config.KubeDeviceArgs{
			"default-scheduler": none, "kubedevice-scheduler": none,
		}, ""},
		"in one profile of two, and not in one without the plugin": {`
profiles:
- schedulerName: a
- schedulerName: b
  pluginConfig:
  - name: KubeDevice
    args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeDeviceArgs, quota: warn}
- schedulerName: c
  plugins: {multiPoint: {disabled: [{name: KubeDevice}]}}
`, nil, map[string]config.KubeDeviceArgs{"a": warn, "b": warn}, ""},
		"flags alone": {"", []string{"--device-quota=warn"}, map[string]config.KubeDeviceArgs{
			"default-scheduler": warn, "kubedevice-scheduler": warn,
		}, ""},
		"a flag with another value than the file": {`
profiles:
- schedulerName: a
  pluginConfig: [{name: KubeDevice, args: {quota: everywhere, bestDevicesWait: 1m, verdictCache: false}}]
`, []string{"--device-quota=warn", "--device-verdict-cache", "--best-devices-wait=60s"},
			map[string]config.KubeDeviceArgs{"a": complete(func(a *config.KubeDeviceArgs) {
				a.Quota = ptr.To(frameworkplugin.QuotaWarn)
				a.BestDevicesWait = &metav1.Duration{Duration: time.Minute}
			})},
			`field="quota" overridden="everywhere" flag="--device-quota=warn"`},
		"a key, whose file states the mode": {"", []string{"--device-seal-key=/keys"}, map[string]config.KubeDeviceArgs{
			"default-scheduler": complete(func(a *config.KubeDeviceArgs) {
				a.SealKey, a.SealMode = ptr.To("/keys"), nil
			}),
			"kubedevice-scheduler": complete(func(a *config.KubeDeviceArgs) {
				a.SealKey, a.SealMode = ptr.To("/keys"), nil
			}),
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			key := filepath.Join(t.TempDir(), "keys.pem")
			writeKey(t, key)
			for i := range test.flags {
				test.flags[i] = strings.Replace(test.flags[i], "/keys", key, 1)
			}
			written, output, _, err := configure(t, test.profiles, test.flags...)
			if err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			written = strings.ReplaceAll(written, key, "/keys")
			if diff := cmp.Diff(test.want, writtenArgs(t, written)); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
			if !strings.Contains(output, test.says) || test.says == "" && strings.Contains(output, "wins over") {
				t.Errorf("the log lacks %q:\n%s", test.says, output)
			}
			if strings.Contains(output, `field="verdictCache"`) != strings.Contains(test.profiles, "verdictCache") ||
				strings.Contains(output, `field="bestDevicesWait"`) {
				t.Errorf("the log does not name what flags override, and that alone:\n%s", output)
			}
		})
	}
}

func writeKey(t *testing.T, path string) {
	t.Helper()
	text, err := seal.EncodePrivateKeys([]ed25519.PrivateKey{ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))})
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestInvalidArgumentsNameFileFieldValueAndWhatIsAllowed(t *testing.T) {
	for name, test := range map[string]struct {
		profiles string
		flags    []string
		want     []string
	}{
		"an unknown field": {
			"profiles: [{pluginConfig: [{name: KubeDevice, args: {quotta: warn}}]}]\n", nil,
			[]string{".profiles[0].pluginConfig[0]", `unknown field "quotta"`},
		},
		"a field that occurs twice": {
			"profiles: [{pluginConfig: [{name: KubeDevice, args: {quota: warn, quota: warn}}]}]\n", nil,
			[]string{`"quota" already set`},
		},
		"another version": {
			"profiles: [{pluginConfig: [{name: KubeDevice, args: " +
				"{apiVersion: kubescheduler.config.k8s.io/v9, kind: KubeDeviceArgs}}]}]\n", nil,
			[]string{"kubescheduler.config.k8s.io/v9"},
		},
		"a value of another type": {
			"profiles: [{pluginConfig: [{name: KubeDevice, args: {bestDevicesWait: soon}}]}]\n", nil,
			[]string{"decoding args for plugin KubeDevice", "soon"},
		},
		"values that are not allowed": {
			"profiles: [{pluginConfig: [{name: KubeDevice, args: {quota: never, securePort: 70000}}]}]\n", nil,
			[]string{
				`profiles[0].pluginConfig[KubeDevice].args.quota: Unsupported value: "never": supported values: ` +
					`"warn", "enforce", "everywhere"`,
				"profiles[0].pluginConfig[KubeDevice].args.securePort: Invalid value: 70000: must be from 1 to 65535",
			},
		},
		"a value of a flag": {
			"", []string{"--device-search-budget=1ns"},
			[]string{`args.searchBudget: Invalid value: "1ns": must be 100µs or more; it is set by ` +
				"--device-search-budget=1ns"},
		},
		"profiles that differ": {`
profiles:
- {schedulerName: a, pluginConfig: [{name: KubeDevice, args: {quota: warn}}]}
- {schedulerName: b, pluginConfig: [{name: KubeDevice, args: {quota: enforce}}]}
`, nil, []string{"profiles[1].pluginConfig[KubeDevice].args.quota: Forbidden: it must be the same in all profiles"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, output, file, err := configure(t, test.profiles, test.flags...)
			if err == nil {
				t.Fatalf("the scheduler started:\n%s", output)
			}
			output = strings.ReplaceAll(output, `\"`, `"`) // the error is logged as a quoted value
			for _, want := range append(test.want, file) {
				if !strings.Contains(output, want) {
					t.Errorf("the error lacks %q:\n%s", want, output)
				}
			}
		})
	}
}

func TestDeprecatedFlagIsAcceptedHiddenAndReported(t *testing.T) {
	_, output, _, err := configure(t, "", "--device-share-events=false")
	if err != nil || !strings.Contains(output, "--device-share-events has been deprecated, it has no effect") {
		t.Errorf("error %v, output:\n%s", err, output)
	}
	help, err := command(t, "--help")
	if err != nil || strings.Contains(help, "--device-share-events") {
		t.Errorf("error %v, help:\n%s", err, help)
	}
}

func TestFactoryRefusesForeignAndInvalidArguments(t *testing.T) {
	factory := newFactory(nil, nil, &madeLedger{})
	for _, test := range []struct {
		args runtime.Object
		want string
	}{
		{&runtime.Unknown{}, "the arguments are a *runtime.Unknown"},
		{
			&config.KubeDeviceArgs{BestDevicesWait: &metav1.Duration{Duration: -1}},
			`args.bestDevicesWait: Invalid value: "-1ns"`,
		},
		{&config.KubeDeviceArgs{SealKey: ptr.To("/no/such/file")}, "make the file with kubecri seal-keys"},
	} {
		if _, err := factory(context.Background(), test.args, nil); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: error %v, want %q", test.args, err, test.want)
		}
	}
}

func TestSealModeIsTheSetOneElseThatOfTheKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.pem")
	for _, test := range []struct{ set, stated, want seal.Mode }{
		{"", "", seal.Enforce}, {"", seal.Warn, seal.Warn}, {seal.Off, seal.Enforce, seal.Off},
		{seal.Warn, "", seal.Warn}, {seal.Enforce, seal.Off, seal.Enforce},
	} {
		writeKey(t, path)
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, test.stated.State(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		var set *seal.Mode
		if test.set != "" {
			set = &test.set
		}
		if got, err := openSeals(t.Context(), path, set); err != nil || got.Mode != test.want {
			t.Errorf("set %q, keys %q: mode %q, error %v; want %q", test.set, test.stated, got.Mode, err, test.want)
		}
	}
	if got, err := openSeals(t.Context(), "", nil); err != nil || got.Mode != seal.Off || got.Keys != nil {
		t.Errorf("without keys: %+v, %v", got, err)
	}
}
