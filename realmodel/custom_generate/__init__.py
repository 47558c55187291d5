"""The schedules inside transformers' `generate`: a `custom_generate` callable, and the function of an uploaded folder.

    model.generate(**inputs, max_new_tokens=64, custom_generate=schedule_generate, schedule="packed", width=8, mask_token_id=0)

The result is what `generate` returns, with fewer forward passes: the same tokens when it does not sample, the same law when it
does. Whatever `generate` was asked for is done as `generate` does it, or refused by name with InvalidInput.
"""

from realmodel.custom_generate.asked import PURE_PROCESSORS
from realmodel.custom_generate.decoding import ScheduleOutput, generate, schedule_generate

__all__ = ["PURE_PROCESSORS", "ScheduleOutput", "generate", "schedule_generate"]
