// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"strings"
)

// script runs in a container. Its arguments are ID, major and minor of each device of the node. A
// device that is there is opened; for one that is not, the container makes a device node of its own
// and opens that.
//
// No driver is behind the simulated devices. So an open that is allowed fails in the driver's
// place, with ENXIO ("No such device or address"), and one that is not fails before that, with
// EPERM ("Operation not permitted").
const script = `while [ $# -gt 0 ]; do
  kind=sees; path=` + DeviceDirectory + `/$1
  [ -e $path ] || { kind=lacks; path=/tmp/$1; [ -e $path ] || mknod $path c $2 $3 || exit; }
  echo "$kind $1 $( (exec 3<$path) 2>&1)"
  shift 3
done`

// Probe returns the command with which a container tries all these devices, those of its node.
// Observe runs it; a container that ends before one can exec runs it itself, and what it printed is
// for Read.
func Probe(devices []Device) []string {
	command := []string{"sh", "-c", script, "probe"}
	for _, device := range devices {
		command = append(command, device.ID, device.Major, device.Minor)
	}
	return command
}

// Read takes in what Probe's command printed. A device that is there and cannot be opened is an
// error, as is one that is not there and can be.
func (s *Observation) Read(printed string) error {
	for line := range strings.Lines(printed) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		id, answer, _ := strings.Cut(rest, " ")
		permitted := !strings.Contains(answer, "Operation not permitted")
		switch {
		case kind == "sees" && permitted:
			s.Visible = append(s.Visible, id)
		case kind == "lacks" && !permitted:
			s.Refused = append(s.Refused, id)
		case kind == "sees":
			return fmt.Errorf("%s cannot open the device %s that it was allocated: %s", s, id, answer)
		default:
			return fmt.Errorf("%s can open the device %s that it was not allocated: %q", s, id, answer)
		}
	}
	return nil
}
