// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

func TestDefaultsAreValidAndStayWhenSetTwice(t *testing.T) {
	args := &KubeDeviceArgs{}
	SetDefaults(args)
	if errs := Validate(field.NewPath("args"), args); len(errs) > 0 {
		t.Errorf("the defaults are not valid: %v", errs)
	}
	for _, s := range settings {
		if s.pointer(args).IsNil() {
			t.Errorf("%s has no default", s.field)
		}
	}
	once := args.DeepCopy()
	SetDefaults(args)
	if diff := cmp.Diff(once, args); diff != "" {
		t.Errorf("the second time (-before +after):\n%s", diff)
	}
}

func TestEveryFieldHasAFlagOfItsOwn(t *testing.T) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	(&Flags{}).AddTo(flags)
	seen := map[string]bool{}
	for _, s := range settings {
		if flags.Lookup(s.flag) == nil || seen[s.flag] {
			t.Errorf("%s: flag %q", s.field, s.flag)
		}
		seen[s.flag] = true
	}
	// TypeMeta has none.
	if got := reflect.TypeFor[KubeDeviceArgs]().NumField() - 1; got != len(settings) {
		t.Errorf("%d fields, and %d of them are set by a flag", got, len(settings))
	}
}

func TestCopySharesNothing(t *testing.T) {
	args := Defaults()
	copied := args.DeepCopy()
	for _, s := range settings {
		if s.pointer(args).Pointer() == s.pointer(copied).Pointer() && !s.pointer(args).IsNil() {
			t.Errorf("%s is shared", s.field)
		}
	}
	(*copied.ClaimLevels)[0] = "a.b/c"
	if (*args.ClaimLevels)[0] == "a.b/c" {
		t.Error("claimLevels is shared")
	}
	copied = args.DeepCopy()
	if diff := cmp.Diff(args, copied); diff != "" {
		t.Errorf("the copy (-original +copy):\n%s", diff)
	}
}

func TestValidateNamesFieldValueAndWhatIsAllowed(t *testing.T) {
	for want, change := range map[string]func(*KubeDeviceArgs){
		`args.bestDevicesWait: Invalid value: "-1s": must be 0s, which is for ever, or more`: func(a *KubeDeviceArgs) {
			a.BestDevicesWait = &metav1.Duration{Duration: -time.Second}
		},
		`args.quota: Unsupported value: "no": supported values: "warn", "enforce", "everywhere"`: func(
			a *KubeDeviceArgs,
		) {
			a.Quota = ptr.To(frameworkplugin.QuotaMode("no"))
		},
		`args.sealMode: Unsupported value: "no": supported values: "off", "warn", "enforce"`: func(a *KubeDeviceArgs) {
			a.SealMode = ptr.To(seal.Mode("no"))
		},
		`args.sealMode: Invalid value: "warn": there are no keys to verify seals with: name a file of keys in ` +
			`sealKey, or use "off"`: func(
			a *KubeDeviceArgs,
		) {
			a.SealMode = ptr.To(seal.Warn)
		},
		`args.claimLevels: Invalid value: "example.com/1": "example.com/1" must be the name of an attribute with its ` +
			`domain, such as "resource.kubernetes.io/pcieRoot": a valid C identifier must start with alphabetic ` +
			`character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or ` +
			`'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')`: func(a *KubeDeviceArgs) {
			a.ClaimLevels = &claims.Levels{"example.com/1"}
		},
		`args.claimLevels: Invalid value: "a.b/c,a.b/c": has "a.b/c" twice`: func(a *KubeDeviceArgs) {
			a.ClaimLevels = &claims.Levels{"a.b/c", "a.b/c"}
		},
		`args.searchBudget: Invalid value: "0s": must be 100µs or more`: func(a *KubeDeviceArgs) {
			a.SearchBudget = &metav1.Duration{}
		},
		`args.cycleBudget: Invalid value: "1ms": must be searchBudget, which is 5ms, or more`: func(a *KubeDeviceArgs) {
			a.CycleBudget = &metav1.Duration{Duration: time.Millisecond}
		},
		`args.securePort: Invalid value: -1: must be from 1 to 65535, or 0 for no API`: func(a *KubeDeviceArgs) {
			a.SecurePort = ptr.To[int32](-1)
		},
	} {
		args := &KubeDeviceArgs{}
		change(args)
		SetDefaults(args)
		if got := Validate(field.NewPath("args"), args).ToAggregate(); got == nil || got.Error() != want {
			t.Errorf("error %v\nwant  %s", got, want)
		}
	}
}

func TestFlagsOverrideAndReportOnlyWhatDiffers(t *testing.T) {
	var f Flags
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.AddTo(flags)
	arguments := []string{"--device-quota=warn", "--device-verdict-cache=false", "--devschedpath=/b"}
	if err := flags.Parse(arguments); err != nil {
		t.Fatal(err)
	}
	args := &KubeDeviceArgs{VerdictCache: ptr.To(false), PluginDirectory: ptr.To("/a")}
	got := f.Override(args)
	want := []Overridden{{Field: "pluginDirectory", File: "/a", Flag: "--devschedpath=/b"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("overridden (-want +got):\n%s", diff)
	}
	all := &KubeDeviceArgs{
		Quota: ptr.To(frameworkplugin.QuotaWarn), VerdictCache: ptr.To(false), PluginDirectory: ptr.To("/b"),
	}
	if diff := cmp.Diff(all, args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	for _, invalid := range []string{
		"--device-quota=no", "--device-claim-levels=numaNode", "--best-devices-wait=soon", "--devices-secure-port=x",
	} {
		if err := flags.Parse([]string{invalid}); err == nil {
			t.Errorf("%s is accepted", invalid)
		}
	}
}

// The reference has a row for each field: its name, its flag and its default.
func TestReferenceNamesEveryField(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/scheduler-config.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) > 4 && strings.HasPrefix(line, "| `") {
			for i := range cells {
				cells[i] = strings.Trim(cells[i], " `\n")
			}
			rows[cells[1]] = cells[2:]
		}
	}
	defaults := Defaults()
	for _, s := range settings {
		want := "see below"
		if field := s.pointer(defaults); !field.IsNil() {
			want = written(field.Elem())
		}
		if below := "`" + want + "`"; len(want) > 40 && strings.Contains(string(text), below) {
			want = "see below"
		}
		row := rows[s.field]
		if row == nil || row[0] != "--"+s.flag || row[1] != want {
			t.Errorf("the row of %s is %q; want flag --%s and default %q", s.field, row, s.flag, want)
		}
		delete(rows, s.field)
	}
	for name := range rows {
		t.Errorf("there is no field %s", name)
	}
}
