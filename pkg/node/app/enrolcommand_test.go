// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/deploy"
	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
)

func TestTheConfigurationThatEnrolWritesIsOneOfKubecri(t *testing.T) {
	o := newEnrolOptions()
	content, err := o.configuration(enrolment.Kubelet{
		Node: "node-1", HostnameOverride: "node-1", Kubeconfig: "/etc/kubernetes/kubelet.conf",
		RootDir: "/var/lib/kubelet", Endpoint: "unix:///var/run/containerd/containerd.sock",
	})
	if err != nil {
		t.Fatal(err)
	}
	o.kubecri.configFile = write(t, filepath.Join(t.TempDir(), "kubecri.yaml"), string(content))
	upstream, err := o.configured()
	if err != nil || upstream != "unix:///var/run/containerd/containerd.sock" ||
		o.kubecri.hostnameOverride != "node-1" || o.kubecri.Kubeconfig != "/etc/kubernetes/kubelet.conf" {
		t.Errorf("%+v, %v from\n%s", o.kubecri, err, content)
	}
	if _, err := o.configuration(enrolment.Kubelet{RootDir: "/data/kubelet"}); err == nil {
		t.Error("a configuration for another --root-dir, which it has no word for")
	}
}

func TestUnitsNameWhatIsInstalledElsewhere(t *testing.T) {
	o := newEnrolOptions()
	for _, name := range []string{"kubecri.service", "kubecri.socket"} {
		shipped, err := deploy.Unit(name)
		if err != nil {
			t.Fatal(err)
		}
		if usual, err := o.unit(name); err != nil || string(usual) != string(shipped) {
			t.Errorf("%s: %v\n%s", name, err, usual)
		}
	}
	o.program, o.kubecri.configFile = "/opt/kubecri", "/opt/kubecri.yaml"
	o.kubecri.ServeEndpoint = "unix:///run/x/x.sock"
	for name, want := range map[string]string{
		"kubecri.service": "ExecStart=/opt/kubecri --kubecri-config=/opt/kubecri.yaml\n",
		"kubecri.socket":  "ListenStream=/run/x/x.sock\n",
	} {
		if changed, err := o.unit(name); err != nil || !strings.Contains(string(changed), want) {
			t.Errorf("%s: %v, want %q in\n%s", name, err, want, changed)
		}
	}
	if _, err := o.unit("missing"); err == nil {
		t.Error("there is a unit that does not exist")
	}
}

func TestTheServersTimeIsRead(t *testing.T) {
	_, kubeconfig := startAPIServer(t)
	there, err := serverTime(t.Context(), kubeconfig)
	if err != nil || time.Since(there).Abs() > time.Minute {
		t.Errorf("%v, %v", there, err)
	}
}

func TestEnrolAndLeaveSayWhichArgumentIsWrong(t *testing.T) {
	broken := write(t, filepath.Join(t.TempDir(), "kubecri.yaml"), "kind: x\n")
	for _, verb := range []string{"enrol", "leave"} {
		for name, test := range map[string]struct {
			args []string
			want string
		}{
			"a format":               {[]string{"-o", "xml"}, `--output "xml": want text or json`},
			"a broken configuration": {[]string{"--kubecri-config", broken}, broken},
			"an argument":            {[]string{"node-1"}, "node-1"},
		} {
			if out, err := execute(append([]string{verb}, test.args...)...); err == nil ||
				!strings.Contains(err.Error(), test.want) || errors.As(err, &exitStatus{}) {
				t.Errorf("%s, %s: %q, %v; want an error with %q", verb, name, out, err, test.want)
			}
		}
	}
}

func TestAProgramFromAPackageIsStartedByThePackagesUnit(t *testing.T) {
	for running, want := range map[string]string{
		"/usr/bin/kubecri": "/usr/bin/kubecri", "/usr/local/bin/kubecri": "/usr/local/bin/kubecri",
		"/root/kubecri": "/usr/local/bin/kubecri",
	} {
		if got := unitProgram(running); got != want {
			t.Errorf("enrol by %s: the unit starts %s, want %s", running, got, want)
		}
	}
}
