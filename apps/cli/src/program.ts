import { Command } from 'commander';
import { addAlarmList } from './commands/alarm-list.ts';
import { addApprove } from './commands/approve.ts';
import { addCheckHistory } from './commands/check-history.ts';
import { addDoctor } from './commands/doctor.ts';
import { addErase } from './commands/erase.ts';
import { addHoldList } from './commands/hold-list.ts';
import { addHoldRelease } from './commands/hold-release.ts';
import { addHoldSet } from './commands/hold-set.ts';
import { addInstanceFence } from './commands/instance-fence.ts';
import { addInstanceList } from './commands/instance-list.ts';
import { addKeyCreate } from './commands/key-create.ts';
import { addKeyList } from './commands/key-list.ts';
import { addKeyRevoke } from './commands/key-revoke.ts';
import { addMigrate } from './commands/migrate.ts';
import { addPasskeyList } from './commands/passkey-list.ts';
import { addPasskeyRevoke } from './commands/passkey-revoke.ts';
import { addPersonAdd } from './commands/person-add.ts';
import { addPersonDisable } from './commands/person-disable.ts';
import { addPersonEnable } from './commands/person-enable.ts';
import { addPersonInvite } from './commands/person-invite.ts';
import { addPersonLink } from './commands/person-link.ts';
import { addPersonList } from './commands/person-list.ts';
import { addPersonSet } from './commands/person-set.ts';
import { addReceipt } from './commands/receipt.ts';
import { addReconcile } from './commands/reconcile.ts';
import { addReject } from './commands/reject.ts';
import { addRestoreCheck } from './commands/restore-check.ts';
import { addRetention } from './commands/retention.ts';
import { addRunCancel } from './commands/run-cancel.ts';
import { addRunCreate } from './commands/run-create.ts';
import { addRunEvents } from './commands/run-events.ts';
import { addRunList } from './commands/run-list.ts';
import { addRunOldest } from './commands/run-oldest.ts';
import { addRunShow } from './commands/run-show.ts';
import { addService } from './commands/service.ts';
import { addSigningKeyCreate } from './commands/signing-key-create.ts';
import { addSigningKeyPublic } from './commands/signing-key-public.ts';
import { addTenantLoad } from './commands/tenant-load.ts';
import { addTour } from './commands/tour.ts';
import { addUp } from './commands/up.ts';
import { addVerdictRecord, VERDICT_EXAMPLES } from './commands/verdict-record.ts';
import { addVerdictSupport } from './commands/verdict-support.ts';
import { addVerifyCheckpoints } from './commands/verify-checkpoints.ts';
import { addVerifyHistory } from './commands/verify-history.ts';
import { addVerifyReceipt } from './commands/verify-receipt.ts';

/** The command line. Each command loads what it needs only when it runs: a worker's process must stay small. */
export function createProgram(): Command {
  const program = new Command('counterstamp')
    .description('A person stamps the exact bytes, the fleet performs them once, a separate read proves the result.')
    .version('0.1.0')
    .exitOverride()
    .showHelpAfterError('(add --help for usage and examples)');
  addUp(program);
  addTour(program);
  addService(program);
  addMigrate(program);
  const key = program.command('key').description('API keys');
  addKeyCreate(key);
  addKeyList(key);
  addKeyRevoke(key);
  const person = program.command('person').description('People and service accounts: who may do what');
  addPersonAdd(person);
  addPersonSet(person);
  addPersonInvite(person);
  addPersonLink(person);
  addPersonDisable(person);
  addPersonEnable(person);
  addPersonList(person);
  const passkey = program.command('passkey').description('The passkeys that people enrolled');
  addPasskeyList(passkey);
  addPasskeyRevoke(passkey);
  const run = program.command('run').description('Create runs and look at them');
  addRunCreate(run);
  addRunShow(run);
  addRunList(run);
  addRunEvents(run);
  addRunCancel(run);
  addRunOldest(run);
  const tenant = program.command('tenant').description('Tenants and what they have open');
  addTenantLoad(tenant);
  addApprove(program);
  addReject(program);
  addReconcile(program);
  const verdict = program
    .command('verdict')
    .usage(
      '<run_id> --landed|--did-not-land|--landed-differently <file>|--still-unknown [options], or support <run_id> [options]',
    )
    .description('Record what a person saw of an effect in doubt')
    .addHelpText('after', VERDICT_EXAMPLES);
  addVerdictRecord(verdict);
  addVerdictSupport(verdict);
  const instance = program.command('instance').description('Process lives of the fleet, and their ends');
  addInstanceList(instance);
  addInstanceFence(instance);
  const hold = program.command('hold').description('Switch dispatches off and on: the brake of the whole installation');
  addHoldSet(hold);
  addHoldRelease(hold);
  addHoldList(hold);
  const alarm = program.command('alarm').description('What somebody must look at: tampering, and broken glasses');
  addAlarmList(alarm);
  const restore = program.command('restore').description('After a backup was restored');
  addRestoreCheck(restore);
  addErase(program);
  addRetention(program);
  addReceipt(program);
  addVerifyReceipt(program);
  addVerifyCheckpoints(program);
  const signingKey = program.command('signing-key').description('Keys that sign what strangers verify');
  addSigningKeyCreate(signingKey);
  addSigningKeyPublic(signingKey);
  addVerifyHistory(program);
  addCheckHistory(program);
  addDoctor(program);
  return program;
}
