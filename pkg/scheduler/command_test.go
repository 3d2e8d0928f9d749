// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/component-base/cli"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/scheduler/config"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
)

// asCommand makes this test binary run the command instead of the tests.
const asCommand = "KUBEDEVICE_TEST_RUN_COMMAND"

func TestMain(m *testing.M) {
	pluginload.MaybeChild()
	if os.Getenv(asCommand) != "" {
		os.Exit(cli.Run(NewCommand()))
	}
	goleak.VerifyTestMain(m)
}

// command runs the command in a process of its own.
func command(t *testing.T, arguments ...string) (output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", arguments...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// profiles returns what the command makes of a configuration: for each profile the plugins of the
// extension points at which order matters, and whether ours is among them.
func profiles(t *testing.T, config string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	written := filepath.Join(dir, "written.yaml")
	arguments := []string{
		"--write-config-to=" + written, "--master=http://127.0.0.1:1", "--secure-port=0", "--leader-elect=false",
		"--devschedpath=" + filepath.Join(dir, "none"),
	}
	if config != "" {
		file := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(file,
			[]byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"+config),
			0o600); err != nil {
			t.Fatal(err)
		}
		arguments = append(arguments, "--config="+file)
	}
	if output, err := command(t, arguments...); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	text, err := os.ReadFile(written)
	if err != nil {
		t.Fatal(err)
	}
	var result configv1.KubeSchedulerConfiguration
	if err := yaml.Unmarshal(text, &result); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, profile := range result.Profiles {
		got[*profile.SchedulerName] = summary(profile.Plugins)
	}
	return got
}

// summary describes where a profile has our plugin.
func summary(plugins *configv1.Plugins) string {
	var words []string
	for _, set := range []struct {
		name string
		configv1.PluginSet
	}{{"multipoint", plugins.MultiPoint}, {"postfilter", plugins.PostFilter}, {"bind", plugins.Bind}} {
		at := slices.IndexFunc(set.Enabled, func(p configv1.Plugin) bool { return p.Name == frameworkplugin.Name })
		switch {
		case at < 0:
			words = append(words, "not in "+set.name)
		case len(set.Enabled) == 1:
			words = append(words, "alone in "+set.name)
		case at == 0:
			words = append(words, "first in "+set.name)
		case at == len(set.Enabled)-1:
			words = append(words, "last in "+set.name)
		case set.Enabled[at+1].Name == names.NodeResourcesFit:
			words = append(words, "before the resources in "+set.name)
		default:
			words = append(words, "somewhere in "+set.name)
		}
		if at >= 0 && set.Enabled[at].Weight != nil && *set.Enabled[at].Weight > 0 {
			words = append(words, "with a weight")
		}
	}
	return strings.Join(words, ", ")
}

func TestThePluginIsOnInEveryProfile(t *testing.T) {
	const on = "before the resources in multipoint, alone in postfilter, alone in bind"
	for name, test := range map[string]struct {
		config string
		want   map[string]string
	}{
		"without a configuration": {"", map[string]string{"default-scheduler": on, "kubedevice-scheduler": on}},
		"without profiles": {
			"parallelism: 3\n", map[string]string{"default-scheduler": on, "kubedevice-scheduler": on},
		},
		"with a default profile of its own": {`
profiles:
- plugins:
    postFilter: {enabled: [{name: DefaultPreemption}]}
`, map[string]string{
			"default-scheduler":    "before the resources in multipoint, first in postfilter, alone in bind",
			"kubedevice-scheduler": "before the resources in multipoint, first in postfilter, alone in bind",
		}},
		"with a profile of our name": {`
profiles:
- schedulerName: default-scheduler
- schedulerName: kubedevice-scheduler
  plugins:
    postFilter: {enabled: [{name: DefaultPreemption}]}
`, map[string]string{
			"default-scheduler":    on,
			"kubedevice-scheduler": "before the resources in multipoint, first in postfilter, alone in bind",
		}},
		"with a default profile without devices": {`
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint: {disabled: [{name: KubeDevice}]}
`, map[string]string{"default-scheduler": "not in multipoint, not in postfilter, not in bind"}},
		"with a default profile that does not bind devices": {`
profiles:
- schedulerName: default-scheduler
  plugins:
    bind: {disabled: [{name: KubeDevice}]}
`, map[string]string{
			"default-scheduler": "before the resources in multipoint, alone in postfilter, not in bind",
		}},
		"with many profiles": {`
profiles:
- schedulerName: plain
- schedulerName: scores-off
  plugins:
    score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality, weight: 7}]}
- schedulerName: all-off
  plugins:
    multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}, {name: DefaultBinder}]}
- schedulerName: other-binder
  plugins:
    bind: {disabled: [{name: '*'}], enabled: [{name: DefaultBinder}]}
- schedulerName: other-preemption
  plugins:
    postFilter: {enabled: [{name: DefaultPreemption}]}
- schedulerName: by-hand
  plugins:
    multiPoint: {enabled: [{name: KubeDevice, weight: 5}]}
- schedulerName: without
  plugins:
    multiPoint: {disabled: [{name: KubeDevice}]}
- schedulerName: without-binding
  plugins:
    bind: {disabled: [{name: KubeDevice}]}
`, map[string]string{
			"plain":            on,
			"scores-off":       on,
			"all-off":          "last in multipoint, alone in postfilter, alone in bind",
			"other-binder":     "before the resources in multipoint, alone in postfilter, first in bind",
			"other-preemption": "before the resources in multipoint, first in postfilter, alone in bind",
			"by-hand":          "last in multipoint, with a weight, alone in postfilter, alone in bind",
			"without":          "not in multipoint, not in postfilter, not in bind",
			"without-binding":  "before the resources in multipoint, alone in postfilter, not in bind",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, profiles(t, test.config)); diff != "" {
				t.Errorf("profiles (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnablingTwiceChangesNothing(t *testing.T) {
	plugins := &configv1.Plugins{MultiPoint: configv1.PluginSet{Enabled: []configv1.Plugin{{Name: "DefaultBinder"}}}}
	enableInProfile(plugins)
	once := plugins.DeepCopy()
	enableInProfile(plugins)
	if diff := cmp.Diff(once, plugins); diff != "" {
		t.Errorf("the second time (-before +after):\n%s", diff)
	}
	profiles := withOwnName([]configv1.KubeSchedulerProfile{
		{SchedulerName: ptr.To("default-scheduler"), Plugins: plugins},
	})
	if got := len(withOwnName(profiles)); len(profiles) != 2 || got != 2 {
		t.Errorf("%d profiles, then %d; want 2", len(profiles), got)
	}
}

func TestHelpNamesOurFlagNextToUpstreams(t *testing.T) {
	output, err := command(t, "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"--devschedpath string", `"` + config.DefaultPluginDirectory + `"`, "--write-config-to",
	} {
		if !strings.Contains(output, part) {
			t.Errorf("help lacks %s:\n%s", part, output)
		}
	}
	output, err = command(t, "--no-such-flag")
	if err == nil || !strings.Contains(output, "unknown flag: --no-such-flag") {
		t.Errorf("an unknown flag: error %v, output:\n%s", err, output)
	}
}
