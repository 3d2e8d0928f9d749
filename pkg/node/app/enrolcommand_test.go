// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/deploy"
	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
)

func TestTheConfigurationThatEnrolWritesIsOneOfKubecri(t *testing.T) {
	o := newEnrolOptions()
	content, err := o.Configuration(enrolment.Kubelet{
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
	if _, err := o.Configuration(enrolment.Kubelet{RootDir: "/data/kubelet"}); err == nil {
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
		if usual, err := o.Unit(name); err != nil || string(usual) != string(shipped) {
			t.Errorf("%s: %v\n%s", name, err, usual)
		}
	}
	o.program, o.kubecri.configFile = "/opt/kubecri", "/opt/kubecri.yaml"
	o.kubecri.ServeEndpoint = "unix:///run/x/x.sock"
	for name, want := range map[string]string{
		"kubecri.service": "ExecStart=/opt/kubecri --kubecri-config=/opt/kubecri.yaml\n",
		"kubecri.socket":  "ListenStream=/run/x/x.sock\n",
	} {
		if changed, err := o.Unit(name); err != nil || !strings.Contains(string(changed), want) {
			t.Errorf("%s: %v, want %q in\n%s", name, err, want, changed)
		}
	}
	if _, err := o.Unit("missing"); err == nil {
		t.Error("there is a unit that does not exist")
	}
}

func TestInModeNRIEnrolWritesAConfigurationAndAUnitWithoutASocket(t *testing.T) {
	o := newEnrolOptions()
	o.mode = ModeNRI
	o.kubecri.configFile = filepath.Join(t.TempDir(), "kubecri.yaml")
	options, err := o.enrolment(io.Discard)
	if err != nil || options.Mode != enrolment.ModeNRI {
		t.Fatalf("mode %q, %v", options.Mode, err)
	}
	content, err := o.Configuration(enrolment.Kubelet{RootDir: "/var/lib/kubelet", Endpoint: "unix:///run/c.sock"})
	if err != nil || strings.Contains(string(content), "containerRuntimeEndpoint") {
		t.Errorf("%v from\n%s", err, content)
	}
	unit, err := o.Unit("kubecri.service")
	if err != nil || strings.Contains(string(unit), "kubecri.socket") || !strings.Contains(string(unit), "ExecStart=") {
		t.Errorf("%v from\n%s", err, unit)
	}

	write(t, o.kubecri.configFile, string(content))
	again := newEnrolOptions()
	again.kubecri.configFile = o.kubecri.configFile
	if options, err := again.enrolment(io.Discard); err != nil || options.Mode != enrolment.ModeNRI ||
		options.Upstream != "unix:///run/c.sock" || options.NRISocket != "/var/run/nri/nri.sock" {
		t.Errorf("the configuration is read as %+v, %v", options, err)
	}
	again.mode = ModeCRI
	if _, err := again.enrolment(io.Discard); err == nil || !strings.Contains(err.Error(), "says mode: nri") {
		t.Errorf("another mode on the command line: %v", err)
	}
}

func TestEnrolSeesWhetherKubecriIsRegistered(t *testing.T) {
	for name, test := range map[string]struct{ answer, says string }{
		"registered":                   {"[+]grants ok\n[+]nri ok; default validator: on\n", ""},
		"not registered":               {"[-]nri: kubecri is not registered\n", "[-]nri: kubecri is not registered"},
		"another kubecri, without NRI": {"[+]grants ok\n", "says nothing of NRI"},
	} {
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, test.answer) })
		for kind, server := range map[string]*httptest.Server{
			"HTTP": httptest.NewServer(handler), "HTTPS": httptest.NewTLSServer(handler),
		} {
			o := newEnrolOptions()
			o.kubecri.MetricsAddress = server.Listener.Addr().String()
			if kind == "HTTPS" { // for all addresses of the machine
				o.kubecri.MetricsAddress = strings.Replace(o.kubecri.MetricsAddress, "127.0.0.1", "0.0.0.0", 1)
			}
			err := o.Registered(t.Context())
			if test.says == "" && err != nil || test.says != "" &&
				(err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("%s by %s: %v, want %q", name, kind, err, test.says)
			}
			server.Close()
		}
	}
}

func TestTheServersTimeIsRead(t *testing.T) {
	_, kubeconfig := startAPIServer(t)
	there, err := apiServers{}.Time(t.Context(), kubeconfig)
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
